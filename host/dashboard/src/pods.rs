//! Pure: which Pods of a job run, and why the others do not.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use serde::Serialize;

use crate::shown::shown;

/// Reasons that every Pod has for a moment while its containers start.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Reason of a Pod whose init container runs. The kubelet has no reason for it.
pub const INITIALIZING: &str = "Initializing";

/// The Pods of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// The number of them.
    pub total: usize,
    /// The number of those that run.
    pub running: usize,
    /// Those that do not run.
    pub others: Vec<PodLine>,
}

/// A Pod that does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLine {
    /// Its name.
    pub name: String,
    /// `status.phase`, or `Terminating`.
    pub phase: String,
    /// Reason why it does not run, if Kubernetes reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// Report of the scheduler or the kubelet about a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// One word.
    pub reason: String,
    /// A sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Sorts Pods into those that run and those that do not, by name.
pub fn of(pods: &[Pod]) -> Pods {
    let mut others: Vec<_> = pods.iter().filter_map(line).collect();
    others.sort_by_cached_key(|one| one.name.clone());
    Pods {
        total: pods.len(),
        running: pods.len() - others.len(),
        others,
    }
}

/// A Pod that does not run, or whose container does not.
fn line(pod: &Pod) -> Option<PodLine> {
    let metadata = &pod.metadata;
    let phase = phase(pod);
    let cause = cause(pod);
    if phase == "Running" && cause.is_none() {
        return None;
    }
    Some(PodLine {
        name: shown(metadata.name.as_deref().unwrap_or_default()),
        phase,
        cause,
    })
}

/// `status.phase`, or `Terminating`.
pub fn phase(pod: &Pod) -> String {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if pod.metadata.deletion_timestamp.is_some() {
        "Terminating".to_owned()
    } else {
        shown(phase.unwrap_or("Pending"))
    }
}

/// Returns why a Pod does not run: the kubelet's reason, or else the scheduler's.
pub fn cause(pod: &Pod) -> Option<Cause> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Succeeded") {
        return None;
    }
    if let Some(reason) = &status.reason {
        return Some(cause_of(reason, status.message.as_deref()));
    }
    containers(status)
        .find_map(|container| failed(container).or_else(|| waits(container)))
        .or_else(|| unscheduled(status))
        .or_else(|| initializing(pod, status))
}

/// All containers, in the order in which they start.
fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

fn failed(container: &ContainerStatus) -> Option<Cause> {
    let end = container.state.as_ref()?.terminated.as_ref()?;
    if end.exit_code == 0 {
        return None;
    }
    let exit = format!("container {} ended with {}", container.name, end.exit_code);
    let message = match end.message.as_deref().map(str::trim) {
        Some(words) if !words.is_empty() => format!("{exit}: {words}"),
        _ => exit,
    };
    let word = end.reason.as_deref().unwrap_or("Error");
    Some(cause_of(word, Some(&message)))
}

fn waits(container: &ContainerStatus) -> Option<Cause> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let word = waiting.reason.as_deref()?;
    (!STARTING.contains(&word)).then(|| cause_of(word, waiting.message.as_deref()))
}

/// The init container that the others wait for. A sidecar delays no other container.
fn initializing(pod: &Pod, status: &PodStatus) -> Option<Cause> {
    let stays = |name: &str| {
        let specs = pod.spec.iter().flat_map(|spec| &spec.init_containers);
        let mut specs = specs.flatten().filter(|one| one.name == name);
        specs.any(|one| one.restart_policy.as_deref() == Some("Always"))
    };
    let runs = |one: &&ContainerStatus| {
        let state = one.state.as_ref();
        state.is_some_and(|state| state.running.is_some()) && !stays(&one.name)
    };
    let found = status.init_container_statuses.iter().flatten().find(runs)?;
    let message = format!("the init container {} runs", found.name);
    Some(cause_of(INITIALIZING, Some(&message)))
}

fn unscheduled(status: &PodStatus) -> Option<Cause> {
    let mut conditions = status.conditions.iter().flatten();
    let found = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    Some(cause_of(found.reason.as_deref()?, found.message.as_deref()))
}

fn cause_of(word: &str, message: Option<&str>) -> Cause {
    Cause {
        reason: shown(word),
        message: message.map(shown),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cause_of_pod(restart_policy: &Value, state: &Value) -> Option<String> {
        let pod = json!({
            "metadata": {"name": "train-worker-0"},
            "spec": {
                "containers": [{"name": "main"}],
                "initContainers": [{"name": "fetch", "restartPolicy": restart_policy}],
            },
            "status": {"phase": "Pending", "initContainerStatuses": [{
                "name": "fetch", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            }]},
        });
        let cause = cause(&serde_json::from_value(pod).unwrap())?;
        Some(format!("{}: {}", cause.reason, cause.message?))
    }

    #[test]
    fn an_init_container_that_runs_is_named_unless_it_stays() {
        let running = json!({"running": {}});
        let ended = json!({"terminated": {"exitCode": 0}});
        let named = "Initializing: the init container fetch runs".to_owned();
        assert_eq!(cause_of_pod(&Value::Null, &running), Some(named));
        assert_eq!(cause_of_pod(&json!("Always"), &running), None);
        assert_eq!(cause_of_pod(&Value::Null, &ended), None);
        let failing = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        let failing = cause_of_pod(&Value::Null, &failing);
        assert_eq!(failing.as_deref(), Some("CrashLoopBackOff: back-off"));
    }
}
