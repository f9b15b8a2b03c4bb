//! The statuses of Pods as a kubelet writes them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod,
    PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A Pod whose first container has run since `at`.
pub(super) fn running(main: &str, at: Timestamp) -> PodStatus {
    PodStatus {
        phase: Some("Running".to_owned()),
        conditions: Some(vec![PodCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            ..PodCondition::default()
        }]),
        container_statuses: Some(vec![ContainerStatus {
            name: main.to_owned(),
            state: Some(ContainerState {
                running: Some(ContainerStateRunning {
                    started_at: Some(Time(at)),
                }),
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        }]),
        ..PodStatus::default()
    }
}

/// Name of the first container of a Pod.
pub(super) fn main_container(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].name.clone()
}

/// A Pod whose first container has ended.
pub(super) fn ended(main: &str, exit_code: i32, at: Timestamp) -> PodStatus {
    let (phase, reason) = if exit_code == 0 {
        ("Succeeded", "Completed")
    } else {
        ("Failed", "Error")
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        container_statuses: Some(vec![ContainerStatus {
            name: main.to_owned(),
            state: Some(ContainerState {
                terminated: Some(ContainerStateTerminated {
                    exit_code,
                    reason: Some(reason.to_owned()),
                    finished_at: Some(Time(at)),
                    ..ContainerStateTerminated::default()
                }),
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        }]),
        ..PodStatus::default()
    }
}
