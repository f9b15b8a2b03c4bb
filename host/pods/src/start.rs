//! Pure: the start of a native Pod that has its partition.

use ipu_api::labels::{DEFAULT_CONTAINER_ANNOTATION, IPU_RESOURCE};
use ipu_runtime::pod_start::node_report::{self, NodeReport};
use ipu_runtime::pod_start::{self, StartState};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

/// The start of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// What it does, or that it cannot.
    pub state: StartState,
    /// The reason for which it, or a container beside its main container, has not started.
    pub obstacle: Option<String>,
    /// Time since which its node prepares it, if it still does.
    pub preparing_since: Option<Timestamp>,
}

impl Start {
    /// Reads the start from the status of a Pod.
    pub fn of(pod: &Pod) -> Self {
        Self {
            state: pod_start::start_state(pod, main_container(pod).unwrap_or_default()),
            obstacle: pod_start::obstacle(pod).map(|obstacle| obstacle.to_string()),
            preparing_since: pod_start::preparing_since(pod),
        }
    }

    /// Whether the events of the Pod show more.
    pub fn needs_report(&self, now: Timestamp) -> bool {
        node_report::is_needed(self.state, self.preparing_since, now)
    }

    /// Adds what the events show: the failure of the node, if nothing else stands in the way, and
    /// that an image is being pulled again, which takes as long as it takes.
    #[must_use]
    pub fn with_report(self, report: NodeReport) -> Self {
        match self.state {
            StartState::Unhindered if report.obstacle.is_some() => Self {
                state: StartState::Blocked,
                obstacle: report.obstacle,
                ..self
            },
            StartState::Unpulled if report.is_pulling => Self {
                state: StartState::PullingAgain,
                obstacle: self.obstacle.as_deref().map(pod_start::pulled_again),
                ..self
            },
            _ => self,
        }
    }
}

/// Returns the name of the container that uses the IPUs: the one with the limit, the one that the
/// Pod names as its default, or the first. An injected proxy may be before it.
fn main_container(pod: &Pod) -> Option<&str> {
    let containers = &pod.spec.as_ref()?.containers;
    let limited = containers.iter().find(|container| has_limit(container));
    let annotations = pod.metadata.annotations.as_ref();
    let named = annotations.and_then(|all| all.get(DEFAULT_CONTAINER_ANNOTATION));
    let named = containers
        .iter()
        .find(|container| Some(&container.name) == named);
    let main = limited.or(named).or(containers.first())?;
    Some(&main.name)
}

fn has_limit(container: &Container) -> bool {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    limits.is_some_and(|limits| limits.contains_key(IPU_RESOURCE))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples::pod;

    /// A Pod with an injected proxy before its container, and with these statuses of the two.
    fn of(change: impl FnOnce(&mut Value), proxy: &Value, main: &Value) -> Start {
        Start::of(&pod(|pod| {
            pod["spec"]["containers"] = json!([{"name": "proxy"}, {"name": "main"}]);
            let status = |name: &str, state: &Value| json!({"name": name, "state": state});
            pod["status"] = json!({
                "phase": "Pending", "containerStatuses": [status("proxy", proxy), status("main", main)],
            });
            change(pod);
        }))
    }

    fn limit(pod: &mut Value) {
        pod["spec"]["containers"][1]["resources"] = json!({"limits": {"graphcore.ai/ipu": "4"}});
    }

    fn default_container(pod: &mut Value) {
        pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!("main");
    }

    #[test]
    fn a_proxy_that_runs_does_not_use_the_ipus() {
        let (runs, missing) = (
            json!({"running": {}}),
            json!({"waiting": {"reason": "ErrImagePull"}}),
        );
        for change in [limit as fn(&mut Value), default_container] {
            let start = of(change, &runs, &missing);
            assert_eq!(start.state, StartState::Unpulled);
            let reason = "container main: ErrImagePull";
            assert_eq!(start.obstacle.as_deref(), Some(reason));
            let start = of(change, &missing, &runs);
            assert_eq!(start.state, StartState::Started);
            let reason = "container proxy: ErrImagePull";
            assert_eq!(start.obstacle.as_deref(), Some(reason));
        }
        // Nothing names the container that uses them.
        assert_eq!(of(|_| {}, &runs, &missing).state, StartState::Started);
    }

    #[test]
    fn events_say_what_the_status_does_not() {
        let report = |obstacle: Option<&str>, is_pulling| NodeReport {
            obstacle: obstacle.map(str::to_owned),
            is_pulling,
        };
        let waits = |reason: &str| {
            let waiting = json!({"waiting": {"reason": reason}});
            of(limit, &waiting, &waiting)
        };
        let mounting = waits("ContainerCreating");
        let failed = mounting
            .clone()
            .with_report(report(Some("FailedMount: no secret"), false));
        assert_eq!(failed.state, StartState::Blocked);
        assert_eq!(failed.obstacle.as_deref(), Some("FailedMount: no secret"));
        assert_eq!(mounting.clone().with_report(report(None, true)), mounting);
        let unpulled = waits("ImagePullBackOff");
        assert_eq!(unpulled.clone().with_report(report(None, false)), unpulled);
        let pulls = unpulled.with_report(report(None, true));
        let reason = "container proxy: ImagePullBackOff; the image is being pulled again";
        assert_eq!(pulls.state, StartState::PullingAgain);
        assert_eq!(pulls.obstacle.as_deref(), Some(reason));
    }
}
