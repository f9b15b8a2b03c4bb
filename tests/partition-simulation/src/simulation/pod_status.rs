//! The statuses of Pods, as kubelets and the control plane write them.

use ipu_jobs::facts::pod::main_name;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod,
    PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The main container of a Pod runs, and the Pod is Ready.
pub(super) fn running(pod: &Pod, now: Timestamp) -> PodStatus {
    let running = ContainerState {
        running: Some(ContainerStateRunning {
            started_at: Some(Time(now)),
        }),
        ..ContainerState::default()
    };
    PodStatus {
        phase: Some("Running".to_owned()),
        conditions: Some(vec![PodCondition {
            last_transition_time: Some(Time(now)),
            ..condition("Ready", None)
        }]),
        container_statuses: Some(vec![container(pod, running, true)]),
        ..PodStatus::default()
    }
}

/// The main container of a Pod has ended.
pub(super) fn ended(pod: &Pod, exit_code: i32, now: Timestamp) -> PodStatus {
    let (phase, reason) = if exit_code == 0 {
        ("Succeeded", "Completed")
    } else {
        ("Failed", "Error")
    };
    let ended = ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code,
            reason: Some(reason.to_owned()),
            started_at: Some(Time(now)),
            finished_at: Some(Time(now)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: earlier_conditions(pod),
        container_statuses: Some(vec![container(pod, ended, false)]),
        ..PodStatus::default()
    }
}

/// The node of a Pod has rejected it before it started.
pub(super) fn rejected() -> PodStatus {
    PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some("OutOfcpu".to_owned()),
        message: Some("Pod was rejected: Node didn't have enough resource: cpu".to_owned()),
        ..PodStatus::default()
    }
}

/// The kubelet has ended a Pod, because its node lacks memory.
pub(super) fn evicted(pod: &Pod, now: Timestamp) -> PodStatus {
    let has_started = pod
        .status
        .as_ref()
        .is_some_and(|status| status.container_statuses.is_some());
    let ended = if has_started {
        ended(pod, 137, now)
    } else {
        PodStatus {
            phase: Some("Failed".to_owned()),
            ..PodStatus::default()
        }
    };
    PodStatus {
        reason: Some("Evicted".to_owned()),
        message: Some("The node was low on resource: memory.".to_owned()),
        conditions: Some(vec![condition(
            "DisruptionTarget",
            Some("TerminationByKubelet"),
        )]),
        ..ended
    }
}

/// The scheduler is about to delete a Pod, in favour of another one.
pub(super) fn preempted(pod: &Pod) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    conditions.push(condition("DisruptionTarget", Some("PreemptionByScheduler")));
    status
}

/// The disruption of a Pod stays in its status.
fn earlier_conditions(pod: &Pod) -> Option<Vec<PodCondition>> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let of_disruption = conditions
        .iter()
        .filter(|one| one.type_ == "DisruptionTarget");
    Some(of_disruption.cloned().collect())
}

fn condition(type_: &str, reason: Option<&str>) -> PodCondition {
    PodCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: reason.map(str::to_owned),
        ..PodCondition::default()
    }
}

fn container(pod: &Pod, state: ContainerState, ready: bool) -> ContainerStatus {
    ContainerStatus {
        name: main_name(pod).unwrap_or_default().to_owned(),
        state: Some(state),
        ready,
        ..ContainerStatus::default()
    }
}
