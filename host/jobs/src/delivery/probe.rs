//! Pure: the Pod that executes the agent of a mounted image on one node, and what its status says.

use std::collections::BTreeMap;

use ipu_api::labels::{self, AGENT_VOLUME};
use ipu_text::sanitize;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, LocalObjectReference, Pod, PodSpec, ResourceRequirements,
    SecurityContext, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::ProbeSettings;
use super::choice::Outcome;
use crate::build::{agent, agent_files};

/// Seconds after which the kubelet ends a probe that its operator has forgotten.
const DEADLINE: i64 = 300;

/// Most bytes of a reason.
pub(super) const TEXT_MAX: usize = 400;

/// Reasons of a waiting container that does not start by itself.
const FATAL: [&str; 5] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RunContainerError",
];

/// Builds a Pod that mounts what a launcher mounts, and ends at once. It names its node, so that it
/// runs there also if the node is cordoned or tainted, and so that the scheduler evicts nothing for
/// it. `owner` is the Pod of this process, with which it is deleted.
pub(super) fn pod(settings: &ProbeSettings, node: &str, owner: Option<OwnerReference>) -> Pod {
    let mut container = container(settings);
    let mut spec = PodSpec {
        active_deadline_seconds: Some(DEADLINE),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: Some(secrets(&settings.pull_secrets)),
        node_name: Some(node.to_owned()),
        restart_policy: Some("Never".to_owned()),
        termination_grace_period_seconds: Some(1),
        tolerations: Some(vec![Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }]),
        volumes: Some(vec![agent::image_volume(
            &settings.image,
            settings.pull_policy.as_deref(),
        )]),
        ..PodSpec::default()
    };
    let mut annotations = without_sidecars();
    agent::mount(&mut container);
    let files = agent_files::of_launcher(String::new(), String::new());
    agent_files::add(&mut annotations, &mut spec, &mut container, files);
    spec.containers.push(container);
    Pod {
        metadata: ObjectMeta {
            name: Some(settings.name()),
            namespace: Some(settings.namespace.clone()),
            labels: Some(BTreeMap::from([(
                labels::MANAGED_BY_LABEL.to_owned(),
                labels::MANAGED_BY.to_owned(),
            )])),
            annotations: Some(annotations),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

fn container(settings: &ProbeSettings) -> Container {
    let little = [("cpu", "10m"), ("memory", "32Mi")];
    let little: BTreeMap<_, _> = little
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .into();
    // The user is that of the image: a cluster may give each namespace others.
    let without_root = Container {
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    };
    Container {
        name: AGENT_VOLUME.to_owned(),
        image: Some(settings.image.clone()),
        image_pull_policy: settings.pull_policy.clone(),
        command: Some([agent::PROGRAM, "--version"].map(str::to_owned).to_vec()),
        resources: Some(ResourceRequirements {
            limits: Some(little.clone()),
            requests: Some(little),
            claims: None,
        }),
        security_context: Some(agent::security_context(&without_root)),
        ..Container::default()
    }
}

fn secrets(names: &[String]) -> Vec<LocalObjectReference> {
    let references = names.iter().cloned();
    references
        .map(|name| LocalObjectReference { name })
        .collect()
}

/// A sidecar of a mesh is of no use to the probe, and delays its start.
fn without_sidecars() -> BTreeMap<String, String> {
    let asked = [
        ("linkerd.io/inject", "disabled"),
        ("sidecar.istio.io/inject", "false"),
    ];
    asked
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Returns what a probe has shown. `None`: it has not ended, and may do so by itself. Its own
/// container decides: one that a webhook has added may go on.
pub(super) fn outcome(pod: &Pod) -> Option<Outcome> {
    let state = state(pod).unwrap_or_default();
    let has_succeeded = state.terminated.as_ref().map(|ended| ended.exit_code == 0);
    let waiting = state.waiting.and_then(|waiting| waiting.reason);
    let has_stopped = waiting.is_some_and(|reason| FATAL.contains(&&*reason));
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    match has_succeeded {
        Some(true) => Some(Outcome::Mounts),
        None if phase == Some("Succeeded") => Some(Outcome::Mounts),
        Some(false) => Some(Outcome::Refuses(reason(pod))),
        None if has_stopped || phase == Some("Failed") => Some(Outcome::Refuses(reason(pod))),
        None => None,
    }
}

/// Returns the reason that the status of a Pod has for its delay or failure.
pub(super) fn reason(pod: &Pod) -> String {
    let state = state(pod).unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let waiting = state
        .waiting
        .map(|waiting| (waiting.reason, waiting.message));
    let ended = state.terminated.map(|ended| (ended.reason, ended.message));
    let own = Some((status.reason, status.message));
    let text = [ended, waiting, own]
        .into_iter()
        .flatten()
        .find_map(|(reason, message)| match (reason, message) {
            (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
            (reason, message) => reason.or(message),
        });
    let text = text.unwrap_or_else(|| "its status has no reason".to_owned());
    sanitize(&text, TEXT_MAX)
}

fn state(pod: &Pod) -> Option<ContainerState> {
    let status = pod.status.as_ref()?;
    let mut containers = status.container_statuses.iter().flatten();
    containers
        .find(|container| container.name == AGENT_VOLUME)?
        .state
        .clone()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with_status(status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "probe"}, "status": status})).unwrap()
    }

    fn in_state(phase: &str, state: &Value) -> Pod {
        let container = json!({
            "name": AGENT_VOLUME, "state": state, "image": "", "imageID": "", "ready": false,
            "restartCount": 0,
        });
        with_status(&json!({"phase": phase, "containerStatuses": [container]}))
    }

    #[test]
    fn the_probe_mounts_what_a_launcher_mounts() {
        let settings = ProbeSettings {
            namespace: "ipu-system".to_owned(),
            fullname: "ipu".to_owned(),
            pod_name: None,
            image: "registry/ipu-operator:1".to_owned(),
            pull_policy: Some("IfNotPresent".to_owned()),
            pull_secrets: vec!["registry".to_owned()],
        };
        insta::assert_yaml_snapshot!(pod(&settings, "node-1", None));
    }

    #[test]
    fn only_a_probe_that_cannot_change_any_more_has_an_outcome() {
        let waiting = |reason| json!({"waiting": {"reason": reason, "message": "why"}});
        let ended = |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason, "message": "why"}});
        let unfinished = |pod: &Pod| assert_eq!(outcome(pod), None, "{pod:?}");
        let mounts = |pod: &Pod| assert_eq!(outcome(pod), Some(Outcome::Mounts), "{pod:?}");
        let refuses = |pod: &Pod, reason: &str| {
            let expected = Some(Outcome::Refuses(reason.to_owned()));
            assert_eq!(outcome(pod), expected, "{pod:?}");
        };
        unfinished(&Pod::default());
        unfinished(&with_status(&json!({"phase": "Pending"})));
        for reason in ["ContainerCreating", "ImagePullBackOff"] {
            unfinished(&in_state("Pending", &waiting(reason)));
        }
        unfinished(&in_state("Running", &json!({"running": {}})));
        mounts(&with_status(&json!({"phase": "Succeeded"})));
        // A sidecar goes on.
        mounts(&in_state("Running", &ended(0, "Completed")));
        refuses(
            &in_state("Running", &ended(128, "StartError")),
            "StartError: why",
        );
        let stopped = in_state("Pending", &waiting("CreateContainerError"));
        refuses(&stopped, "CreateContainerError: why");
        let full = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "why"});
        refuses(&with_status(&full), "OutOfcpu: why");
        let unexplained = with_status(&json!({"phase": "Failed"}));
        refuses(&unexplained, "its status has no reason");
    }

    #[test]
    fn a_probe_that_waits_says_why() {
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        assert_eq!(reason(&in_state("Pending", &creating)), "ContainerCreating");
    }
}
