//! Pure: the Pod that executes the agent of a mounted image on one node, and what its status says.

use std::collections::BTreeMap;

use ipu_api::labels::{self, AGENT_VOLUME};
use ipu_text::sanitize;
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerState, LocalObjectReference, NodeAffinity, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements, SecurityContext,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::ProbeSettings;
use crate::build::{agent, agent_files};

/// Seconds after which the kubelet ends a probe that its operator has forgotten.
const DEADLINE: i64 = 300;

/// The user of the operator's image.
const USER: i64 = 65_532;

/// Most characters of a text of the kubelet.
const TEXT_MAX: usize = 300;

/// Reasons of a waiting container that does not start by itself.
const FATAL: [&str; 5] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RunContainerError",
];

/// Builds a Pod that runs on one node, also if that is cordoned or tainted. It mounts what a
/// launcher mounts, and ends at once. `owner` is the Pod of this process, with which it is deleted.
pub(super) fn pod(settings: &ProbeSettings, node: &str, owner: Option<OwnerReference>) -> Pod {
    let mut container = container(settings);
    let mut spec = PodSpec {
        active_deadline_seconds: Some(DEADLINE),
        affinity: Some(only_on(node)),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: Some(secrets(&settings.pull_secrets)),
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
    let user = Container {
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
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
        security_context: Some(agent::security_context(&user)),
        ..Container::default()
    }
}

fn secrets(names: &[String]) -> Vec<LocalObjectReference> {
    let references = names.iter().cloned();
    references
        .map(|name| LocalObjectReference { name })
        .collect()
}

/// As the DaemonSet controller chooses the node of a Pod.
fn only_on(node: &str) -> Affinity {
    let is_node = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm {
        match_fields: Some(vec![is_node]),
        match_expressions: None,
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![term],
            }),
            preferred_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    }
}

/// A sidecar of a mesh would keep the Pod from its end.
fn without_sidecars() -> BTreeMap<String, String> {
    let asked = [
        ("linkerd.io/inject", "disabled"),
        ("sidecar.istio.io/inject", "false"),
    ];
    asked
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Returns what a probe has shown. `None`: it has not ended, and may do so by itself.
pub(super) fn result(pod: &Pod) -> Option<Result<(), String>> {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let has_stopped = state(pod)
        .and_then(|state| state.waiting)
        .and_then(|waiting| waiting.reason)
        .is_some_and(|reason| FATAL.contains(&&*reason));
    match phase {
        Some("Succeeded") => Some(Ok(())),
        Some("Failed") => Some(Err(why(pod))),
        _ if has_stopped => Some(Err(why(pod))),
        _ => None,
    }
}

/// Returns what the status of a Pod says about its delay or failure.
pub(super) fn why(pod: &Pod) -> String {
    let state = state(pod).unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let waiting = state.waiting.map(|one| (one.reason, one.message));
    let ended = state.terminated.map(|one| (one.reason, one.message));
    let unscheduled = status
        .conditions
        .into_iter()
        .flatten()
        .find(|one| one.type_ == "PodScheduled" && one.status == "False")
        .map(|one| (one.reason, one.message));
    let own = Some((status.reason, status.message));
    let said = [ended, waiting, unscheduled, own].into_iter().flatten();
    let said = said.filter_map(|(reason, message)| match (reason, message) {
        (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
        (reason, message) => reason.or(message),
    });
    let said = said.into_iter().next();
    let said = said.unwrap_or_else(|| "its status has no reason".to_owned());
    sanitize(&said, TEXT_MAX)
}

fn state(pod: &Pod) -> Option<ContainerState> {
    let status = pod.status.as_ref()?;
    let mut containers = status.container_statuses.iter().flatten();
    containers
        .find(|one| one.name == AGENT_VOLUME)?
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
    fn only_a_probe_that_cannot_change_any_more_has_a_result() {
        let waiting = |reason| json!({"waiting": {"reason": reason, "message": "why"}});
        let ended =
            json!({"terminated": {"exitCode": 1, "reason": "StartError", "message": "why"}});
        let evicted = json!({"phase": "Failed", "reason": "Evicted"});
        let is = |pod: &Pod, expected: Option<Result<(), &str>>| {
            let expected = expected.map(|result| result.map_err(str::to_owned));
            assert_eq!(result(pod), expected, "{pod:?}");
        };
        is(&Pod::default(), None);
        is(&with_status(&json!({"phase": "Pending"})), None);
        for reason in ["ContainerCreating", "ImagePullBackOff"] {
            is(&in_state("Pending", &waiting(reason)), None);
        }
        is(&in_state("Running", &json!({"running": {}})), None);
        is(&with_status(&json!({"phase": "Succeeded"})), Some(Ok(())));
        let refused = in_state("Pending", &waiting("CreateContainerError"));
        is(&refused, Some(Err("CreateContainerError: why")));
        is(&in_state("Failed", &ended), Some(Err("StartError: why")));
        is(&with_status(&evicted), Some(Err("Evicted")));
        let unexplained = with_status(&json!({"phase": "Failed"}));
        is(&unexplained, Some(Err("its status has no reason")));
    }

    #[test]
    fn a_probe_that_waits_says_why() {
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        assert_eq!(why(&in_state("Pending", &creating)), "ContainerCreating");
        let unscheduled = json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available",
        }]});
        let expected = "Unschedulable: 0/3 nodes are available";
        assert_eq!(why(&with_status(&unscheduled)), expected);
    }
}
