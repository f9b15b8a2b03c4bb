//! Plays the kubelet: the statuses of Pods as it writes them.

use ipu_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod,
    PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::world::World;

impl World {
    /// The kubelet: every Pod that has not started runs and is Ready. A launcher that is held back
    /// takes longer.
    pub(crate) fn run_pods(&mut self) {
        self.run_those(|pod| !is_held(pod));
    }

    /// The kubelet: the launcher that is held back runs.
    pub(crate) fn run_held(&mut self) {
        self.run_those(is_held);
    }

    fn run_those(&mut self, selects: impl Fn(&Pod) -> bool) {
        let at = self.now;
        for pod in self.observed.pods.iter_mut().filter(|pod| selects(pod)) {
            let main = main_container(pod);
            let status = pod.status.get_or_insert_default();
            if status.phase.as_deref().unwrap_or("Pending") == "Pending" {
                *status = running(&main, at);
            }
        }
    }

    /// Whether the command of a launcher is held back.
    pub(crate) fn is_held(&mut self, pod: &str) -> bool {
        is_held(self.pod(pod))
    }

    /// The kubelet: the main container of a Pod ends, and with it the Pod.
    pub(crate) fn end(&mut self, pod: &str, exit_code: i32) {
        let at = self.now;
        let pod = self.pod(pod);
        let main = main_container(pod);
        pod.status = Some(ended(&main, exit_code, at));
    }

    /// The kubelet: the main container of a Pod ends, and the others continue.
    pub(crate) fn end_main(&mut self, pod: &str, exit_code: i32) {
        self.end(pod, exit_code);
        let at = self.now;
        let pod = self.pod(pod);
        let main = main_container(pod);
        let names = pod.spec.iter().flat_map(|spec| &spec.containers);
        let beside: Vec<_> = names
            .filter(|container| container.name != main)
            .flat_map(|container| running(&container.name, at).container_statuses.unwrap())
            .collect();
        let status = pod.status.as_mut().unwrap();
        status.phase = Some("Running".to_owned());
        status.container_statuses.as_mut().unwrap().extend(beside);
    }

    /// Since when the first container of a Pod runs.
    pub(crate) fn started(&mut self, pod: &str) -> Timestamp {
        crate::facts::pod::running_since(self.pod(pod)).unwrap()
    }
}

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

/// Whether the command of a Pod is held back.
fn is_held(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let start = annotations.and_then(|all| all.get(labels::START_ANNOTATION));
    start.is_some_and(|start| start == labels::HELD)
}
