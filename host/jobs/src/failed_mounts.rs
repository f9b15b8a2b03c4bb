//! Reads why a node cannot mount the volumes of a Pod. Only events have the reason, such as a missing Secret.

use std::sync::Arc;

use ipu_runtime::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};

use super::facts::projection::ObservedPod;

/// Time that volumes usually take.
const PATIENCE: SignedDuration = SignedDuration::from_secs(5);

/// Maximum number of events that are read.
const EVENTS_MAX: u32 = 20;

/// Returns the Pod whose volumes take longer than usual. The Pods of a job have the same volumes, so the first one is
/// enough.
pub fn slow_mount(pods: &[Arc<ObservedPod>], now: Timestamp) -> Option<&ObservedPod> {
    let mut mounting = pods.iter().filter(|pod| {
        let since = pod.mounting_since.as_deref();
        since.is_some_and(|since| clock::later(*since, PATIENCE) <= now)
    });
    mounting.next().map(|pod| &**pod)
}

/// Reads the last failure to mount a volume of a Pod: its name and the message. A failed request is no failure of the
/// reconcile: an admin may not have granted the right to list events.
pub async fn read(client: &Client, namespace: &str, pod: &ObservedPod) -> Option<(String, String)> {
    let selector = format!("involvedObject.uid={},reason=FailedMount", pod.object.uid());
    let parameters = ListParams::default().fields(&selector).limit(EVENTS_MAX);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let found = match events.list(&parameters).await {
        Ok(found) => found.items,
        Err(error) => {
            tracing::debug!(%error, pod = pod.object.name(), "failed to list the events of a Pod");
            return None;
        }
    };
    let message = message(found)?;
    Some((pod.object.name().to_owned(), message))
}

/// Returns the message of the last event.
fn message(events: Vec<Event>) -> Option<String> {
    let time = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        last.or(event.event_time.as_ref().map(|time| time.0))
    };
    let last = events.into_iter().max_by_key(time)?;
    Some(format!(
        "FailedMount: {}",
        last.message.unwrap_or_default().trim()
    ))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;

    fn pod(sandbox: &Value) -> Vec<Arc<ObservedPod>> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "w", "uid": "u"},
            "status": {"phase": "Pending", "conditions": [
                sandbox,
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        }))
        .unwrap();
        vec![Arc::new(ObservedPod::of(&pod).unwrap())]
    }

    #[test]
    fn only_a_pod_without_sandbox_mounts_its_volumes() {
        let sandbox = |status: &str| json!({"type": "PodReadyToStartContainers", "status": status});
        let other = json!({"type": "Ready", "status": "False"});
        for (condition, second, expected) in [
            (sandbox("False"), 5, true),
            (sandbox("False"), 4, false),
            (sandbox("True"), 600, false),
            (other, 600, false),
        ] {
            let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            let now = now + SignedDuration::from_secs(second);
            let pods = pod(&condition);
            assert_eq!(slow_mount(&pods, now).is_some(), expected, "{condition}");
        }
    }

    #[test]
    fn the_last_failure_counts() {
        let event = |message: &str, at: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "message": message, "lastTimestamp": at,
            }))
            .unwrap()
        };
        let events = vec![
            event("secret \"b\" not found", "2026-01-01T00:00:09Z"),
            event("secret \"a\" not found", "2026-01-01T00:00:01Z"),
        ];
        let expected = "FailedMount: secret \"b\" not found";
        assert_eq!(message(events).as_deref(), Some(expected));
        assert_eq!(message(Vec::new()), None);
    }
}
