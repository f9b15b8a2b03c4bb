//! Tries the Pods of an admitted IPUJob by a dry run, and warns of each that the API server refuses
//! now.
//!
//! Pod Security, quotas, limit ranges, and policies and webhooks of others decide about Pods, not
//! about IPUJobs. Without the warning, a user learns of the refusal only from the status of the
//! job.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ipu_guest_host::texts::WARNING;
use ipu_ports::rate_limiter::{Rate, RateLimiter, number};
use ipu_runtime::dry_run::{DryRuns, Forms};
use ipu_text::sanitize;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use tokio::time::timeout;

use super::request::AdmissionRequest;

/// Time limit of a trial. A request that has waited longer goes on without warnings.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which an API server waits that does not say so: the default of Kubernetes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Rate limit of trials, each of one or two requests. In a flood of jobs, further jobs get no
/// warning.
const RATE: Rate = Rate::new(number(5), number(20));

/// Longest reason that is shown, in bytes.
const REASON: usize = 640;

/// The fields of which Pods are made. A change of another field needs no trial.
const FIELDS: [&str; 3] = [
    "/spec/workers/template",
    "/spec/launcher",
    "/spec/interactive",
];

/// Builds the Pods of an IPUJob that are tried.
type BuildPods = dyn Fn(&Value) -> Vec<Forms<Pod>> + Send + Sync;

/// Tries Pods as the operator's account. The default tries none.
#[derive(Clone, Default)]
pub struct PodTrial(Option<Arc<Trial>>);

struct Trial {
    client: Client,
    dry_runs: DryRuns,
    build: Box<BuildPods>,
    rate: RateLimiter<()>,
}

impl fmt::Debug for PodTrial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self
            .0
            .as_ref()
            .map_or("no trial of Pods", |_| "a trial of Pods");
        formatter.write_str(state)
    }
}

impl PodTrial {
    /// Tries the Pods that `build` makes of an IPUJob.
    pub fn new(
        client: Client,
        dry_runs: DryRuns,
        build: impl Fn(&Value) -> Vec<Forms<Pod>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(Trial {
            client,
            dry_runs,
            build: Box::new(build),
            rate: RateLimiter::new(RATE),
        })))
    }

    /// Returns the warnings about the Pods of an admitted IPUJob. It never fails: without an answer
    /// within `left` and the time limit there is no warning. A request that is itself a dry run is
    /// tried too, because that is what its user asks.
    pub(super) async fn warnings(&self, request: &AdmissionRequest, left: Duration) -> Vec<String> {
        let Some(trial) = &self.0 else {
            return Vec::new();
        };
        if !changes_pods(request) || trial.rate.check(&()).is_err() {
            return Vec::new();
        }
        let pods = (trial.build)(&request.object);
        let api: Api<Pod> = Api::namespaced(trial.client.clone(), &request.namespace);
        let tried = join_all(pods.iter().map(|pod| pod.refusal(&trial.dry_runs, &api)));
        let Ok(refusals) = timeout(TIMEOUT.min(left), tried).await else {
            return Vec::new();
        };
        let names = pods.iter().map(|pod| pod.usual.metadata.name.as_deref());
        let refused = names.zip(refusals);
        let refused = refused.filter_map(|(name, reason)| Some((name?, reason?)));
        refused
            .flat_map(|(name, reason)| warnings(name, &reason))
            .collect()
    }
}

/// Time since the start of a request in which Pods may be tried: half the time for which the API
/// server waits, which it adds to the path as `timeout=10s`.
pub(super) fn patience(query: Option<&str>) -> Duration {
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let mut values = pairs.filter_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s'));
    let seconds = values.find_map(|seconds| seconds.parse().ok());
    seconds.map_or(PATIENCE, Duration::from_secs) / 2
}

/// Whether a request creates an IPUJob, or changes its Pods.
fn changes_pods(request: &AdmissionRequest) -> bool {
    let Some(old) = &request.old_object else {
        return request.operation.is_some();
    };
    request.sub_resource.is_none()
        && FIELDS
            .iter()
            .any(|field| old.pointer(field) != request.object.pointer(field))
}

/// The warnings about one refused Pod. API servers cut a long warning, so that a long reason takes
/// several.
fn warnings(pod: &str, reason: &str) -> Vec<String> {
    // The API server repeats the name of the Pod.
    let prefix = format!("pods \"{pod}\" is forbidden: ");
    let reason = sanitize(reason.trim_start_matches(&prefix), REASON);
    let mut lines = vec![format!("the API server refuses Pod {pod} now:")];
    for word in reason.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        if line.len() + 1 + word.len() <= WARNING {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("... {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::tests::{request, updating};

    #[test]
    fn only_a_new_job_and_a_change_of_its_pods_are_tried() {
        assert!(changes_pods(&request(|_| {})));
        for (field, expected) in [
            ("workers", true),
            ("launcher", true),
            ("interactive", true),
            ("jobInstances", false),
        ] {
            let other = json!({"template": {"changed": true}});
            let changed = request(updating(|old| old["spec"][field] = other));
            assert_eq!(changes_pods(&changed), expected, "{field}");
        }
        let mut scaled = request(updating(|old| old["spec"]["launcher"] = json!({})));
        scaled.sub_resource = Some("scale".to_owned());
        assert!(!changes_pods(&scaled));
    }

    #[test]
    fn a_trial_takes_at_most_half_the_time_of_its_request() {
        let seconds = |query| patience(query).as_secs();
        assert_eq!(seconds(Some("timeout=30s")), 15);
        assert_eq!(seconds(Some("a=b&timeout=2s")), 1);
        assert_eq!(seconds(Some("timeout=soon")), 5);
        assert_eq!(seconds(None), 5);
    }

    #[test]
    fn a_reason_is_quoted_once_clean_and_bounded() {
        let reason = "pods \"a-worker-0\" is forbidden: violates PodSecurity \"restricted:latest\": \u{1b}[31mprivileged";
        let text = "the API server refuses Pod a-worker-0 now: violates PodSecurity \"restricted:latest\": ";
        let shown = warnings("a-worker-0", reason);
        assert_eq!(shown.len(), 1);
        assert!(shown[0].starts_with(text), "{shown:?}");
        assert!(!shown[0].contains('\u{1b}'), "{shown:?}");
        let long = warnings("a-worker-0", &"container must not set it, ".repeat(1_000));
        assert_eq!(long.len(), 3);
        assert!(long.iter().all(|line| line.len() <= WARNING), "{long:?}");
        assert!(long[1].starts_with("... "), "{long:?}");
    }

    #[tokio::test]
    async fn nothing_is_tried_without_a_client() {
        let warnings = PodTrial::default()
            .warnings(&request(|_| {}), TIMEOUT)
            .await;
        assert_eq!(warnings, [""; 0]);
    }
}
