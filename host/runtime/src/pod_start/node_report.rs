//! Reads what only the events of a Pod show of its start: why its node cannot mount its volumes or
//! create its sandbox, and whether an image is being pulled again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};

use super::{StartState, joined};
use crate::clock;

/// Requeue delay while a node prepares a Pod. No watch reports that this fails.
pub const RETRY: Duration = Duration::from_secs(5);

/// Time that volumes and a sandbox usually take.
const PATIENCE: SignedDuration = SignedDuration::from_secs(5);

/// Maximum number of events that are read.
const EVENTS_MAX: u32 = 100;

/// Events of a node that cannot start a Pod, and the number of occurrences from which they are an
/// obstacle. A network that is being configured on a node, and a volume that another node still
/// has, fail a few times.
const FAILURES: [(&str, i64); 7] = [
    ("FailedAttachVolume", 3),
    ("FailedCreatePodContainer", 3),
    ("FailedCreatePodSandBox", 3),
    ("FailedMapVolume", 1),
    ("FailedMount", 1),
    ("FailedPrepareDynamicResources", 3),
    ("NetworkNotReady", 3),
];

/// Events of a pull that has ended.
const PULL_ENDS: [&str; 4] = ["BackOff", "ErrImageNeverPull", "Failed", "Pulled"];

/// Event of a pull that has begun.
const PULL_BEGINS: &str = "Pulling";

/// What the events of a Pod show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The reason for which its node cannot prepare it.
    pub obstacle: Option<String>,
    /// Whether an image is being pulled.
    pub is_pulling: bool,
}

/// Whether the events of a Pod in this state show more than its status.
pub fn is_needed(start: StartState, preparing_since: Option<Timestamp>, now: Timestamp) -> bool {
    let is_slow = preparing_since.is_some_and(|since| clock::later(since, PATIENCE) <= now);
    start == StartState::Unpulled || (start == StartState::Unhindered && is_slow)
}

/// Reads the events of a Pod. A failed request is no failure of the reconcile: an admin may not
/// have granted the right to list events.
pub async fn read(client: &Client, namespace: &str, uid: &str) -> NodeReport {
    let selector = format!("involvedObject.uid={uid}");
    let parameters = ListParams::default().fields(&selector).limit(EVENTS_MAX);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    match events.list(&parameters).await {
        Ok(found) => report(&found.items),
        Err(error) => {
            tracing::debug!(%error, uid, "failed to list the events of a Pod");
            NodeReport::default()
        }
    }
}

/// Computes the report of a Pod from its events.
fn report(events: &[Event]) -> NodeReport {
    let failures = FAILURES.iter().filter(|(reason, least)| {
        let found = events.iter().filter(|event| is_of(event, &[reason]));
        found.map(count).sum::<i64>() >= *least
    });
    let failures: Vec<&str> = failures.map(|(reason, _)| *reason).collect();
    let obstacle = last(events, &failures).map(|event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        let message = event.message.as_deref().unwrap_or_default();
        joined(reason, Some(message.trim()))
    });
    // Times are whole seconds: a pull that begins and ends in one second has ended.
    let begin = last(events, &[PULL_BEGINS]).and_then(time);
    let end = last(events, &PULL_ENDS).and_then(time);
    NodeReport {
        obstacle,
        is_pulling: begin > end,
    }
}

/// Returns the last event with one of these reasons.
fn last<'a>(events: &'a [Event], reasons: &[&str]) -> Option<&'a Event> {
    let found = events.iter().filter(|event| is_of(event, reasons));
    found.max_by_key(|event| time(event))
}

fn is_of(event: &Event, reasons: &[&str]) -> bool {
    let reason = event.reason.as_deref();
    reason.is_some_and(|reason| reasons.contains(&reason))
}

/// Returns the time of the last occurrence of an event.
fn time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let of_series = series.and_then(|series| series.last_observed_time.as_ref());
    last.or(of_series.map(|time| time.0))
        .or(event.event_time.as_ref().map(|time| time.0))
}

/// Returns the number of occurrences of an event. Every client that can create events in the
/// namespace can write any number.
fn count(event: &Event) -> i64 {
    let series = event.series.as_ref();
    let count = event.count.or(series.and_then(|series| series.count));
    count.unwrap_or(1).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(reason: &str, message: &str, at: &str, count: i32) -> Event {
        serde_json::from_value(json!({
            "metadata": {}, "involvedObject": {}, "reason": reason, "message": message, "count": count,
            "lastTimestamp": format!("2026-01-01T00:00:{at}Z"),
        }))
        .unwrap()
    }

    fn obstacle(events: &[Event]) -> Option<String> {
        report(events).obstacle
    }

    #[test]
    fn last_failure_to_mount_is_the_obstacle() {
        let events = [
            event("FailedMount", "secret \"b\" not found\n", "09", 1),
            event("FailedMount", "secret \"a\" not found", "01", 1),
            event("Scheduled", "assigned to node-1", "00", 1),
        ];
        let expected = "FailedMount: secret \"b\" not found";
        assert_eq!(obstacle(&events).as_deref(), Some(expected));
        assert_eq!(report(&events[2..]), NodeReport::default());
        assert_eq!(report(&[]), NodeReport::default());
    }

    #[test]
    fn sandbox_that_fails_again_and_again_is_an_obstacle() {
        let failed = |at: &str, count| event("FailedCreatePodSandBox", "no network", at, count);
        assert_eq!(obstacle(&[failed("01", 2)]), None, "it also happens once");
        let expected = Some("FailedCreatePodSandBox: no network".to_owned());
        assert_eq!(obstacle(&[failed("30", 3)]), expected);
        // Messages with the id of each sandbox are events of their own.
        let of_each = ["01", "12", "25"].map(|at| failed(at, 1));
        assert_eq!(obstacle(&of_each), expected);
        let mounted = event("FailedMount", "timed out", "02", 4);
        let all = [of_each.to_vec(), vec![mounted]].concat();
        assert_eq!(obstacle(&all), expected, "the last one counts");
    }

    #[test]
    fn counts_of_any_size_are_added() {
        let failed = |at: &str, count| event("FailedCreatePodSandBox", "no network", at, count);
        let expected = Some("FailedCreatePodSandBox: no network".to_owned());
        assert_eq!(
            obstacle(&[failed("01", i32::MAX), failed("02", i32::MAX)]),
            expected
        );
        assert_eq!(
            obstacle(&[failed("01", i32::MIN), failed("02", i32::MIN)]),
            None
        );
    }

    #[test]
    fn pull_that_has_begun_after_the_last_failure_continues() {
        let pull = |at| event("Pulling", "Pulling image \"a:1\"", at, 2);
        let failed = |at| event("Failed", "Failed to pull image \"a:1\"", at, 1);
        for (events, expected) in [
            (vec![pull("05")], true),
            (vec![failed("04"), pull("05")], true),
            (vec![pull("05"), failed("05")], false),
            (vec![pull("05"), event("BackOff", "", "06", 7)], false),
            (vec![pull("05"), event("Pulled", "", "09", 1)], false),
            (vec![failed("04")], false),
            (vec![], false),
        ] {
            assert_eq!(report(&events).is_pulling, expected, "{events:?}");
        }
    }

    #[test]
    fn events_are_read_where_the_status_has_no_reason() {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let now = |second| since + SignedDuration::from_secs(second);
        for (start, preparing, second, expected) in [
            (StartState::Unhindered, Some(since), 5, true),
            (StartState::Unhindered, Some(since), 4, false),
            (StartState::Unhindered, None, 600, false),
            (StartState::Blocked, Some(since), 600, false),
            (StartState::Unpulled, None, 0, true),
            (StartState::Started, None, 600, false),
        ] {
            let found = is_needed(start, preparing, now(second));
            assert_eq!(found, expected, "{start:?} {second}");
        }
    }
}
