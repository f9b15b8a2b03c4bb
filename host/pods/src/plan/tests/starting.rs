//! Pods that have their partition and cannot start.

use ipu_runtime::pod_start::StartState;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::pod::NativePod;
use crate::start::Start;

/// A bound Pod of a Job that fits on no node, with a condition of this status, reason and time.
fn unschedulable(condition: Option<(&str, &str, &str)>) -> ObservedPod {
    let mut seen = replaced("p-web", Some(State::Ready(partition_ref("p-web"))));
    seen.pod.start = Start {
        state: StartState::Blocked,
        obstacle: Some("Unschedulable: 0/3 nodes".to_owned()),
        preparing_since: None,
    };
    seen.pod.condition = condition.map(|(status, reason, since)| PodCondition {
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        last_transition_time: Some(Time(since.parse().unwrap())),
        ..PodCondition::default()
    });
    seen
}

fn not_starting(since: &str) -> ObservedPod {
    unschedulable(Some(("False", "PodNotStarting", since)))
}

#[test]
fn the_timeout_begins_with_the_condition() {
    // A Pod that has waited for its partition for days has not failed to start in that time.
    let waiting = unschedulable(Some((
        "False",
        "WaitingForPartition",
        "2025-12-01T00:00:00Z",
    )));
    for seen in [waiting, unschedulable(None)] {
        assert_eq!(
            decided(&seen, &around()),
            (None, Some("PartitionReady".to_owned()))
        );
    }
    let ready = unschedulable(Some(("True", "PartitionReady", "2025-12-01T00:00:00Z")));
    assert_eq!(
        decided(&ready, &around()),
        (None, Some("PodNotStarting".to_owned()))
    );
    assert_eq!(plan(&ready, &around()).requeue, around().start_timeout);
}

#[test]
fn a_pod_that_cannot_start_is_evicted_after_the_timeout() {
    let early = not_starting("2026-01-01T00:50:01Z");
    assert_eq!(
        decided(&early, &around()),
        (None, Some("PodNotStarting".to_owned()))
    );
    assert_eq!(
        plan(&early, &around()).requeue,
        Some(Duration::from_secs(1))
    );
    let late = not_starting("2026-01-01T00:50:00Z");
    let (step, reported) = decided(&late, &around());
    let Some(Step::Evict(disruption)) = step else {
        panic!("{step:?}");
    };
    assert_eq!(
        (disruption.reason, reported),
        ("PodNotStarting", Some("PodNotStarting".to_owned()))
    );
    assert!(disruption.message.starts_with("Unschedulable: 0/3 nodes;"));
    let mut started = late;
    started.pod.start = Start::default();
    assert_eq!(
        decided(&started, &around()),
        (None, Some("PartitionReady".to_owned()))
    );
}

#[test]
fn a_pod_whose_eviction_releases_nothing_stays() {
    let reported = (None, Some("PodNotStarting".to_owned()));
    let mut bare = not_starting("2025-12-01T00:00:00Z");
    bare.pod.has_controller = false;
    let mut sharing_pod: NativePod = not_starting("2025-12-01T00:00:00Z").pod;
    sharing_pod.request = sharing("1").request;
    let sharing = with_named(sharing_pod, Some(shared(|_| {})));
    for seen in [bare, sharing] {
        assert_eq!(decided(&seen, &around()), reported);
        assert_eq!(plan(&seen, &around()).requeue, None);
    }
    let never = Circumstances {
        start_timeout: None,
        ..around()
    };
    assert_eq!(
        decided(&not_starting("2025-12-01T00:00:00Z"), &never),
        reported
    );
    let ahead = not_starting("2027-01-01T00:00:00Z");
    assert_eq!(
        decided(&ahead, &around()),
        reported,
        "the clock was set back"
    );
}

#[test]
fn a_pod_whose_program_works_is_reported_and_stays() {
    for (state, reported) in [
        (StartState::Started, "PodNotStarting"),
        (StartState::Initializing, "PartitionReady"),
    ] {
        let mut seen = not_starting("2025-12-01T00:00:00Z");
        seen.pod.start.state = state;
        assert_eq!(
            decided(&seen, &around()),
            (None, Some(reported.to_owned())),
            "{state:?}"
        );
    }
}

#[test]
fn a_pull_that_is_tried_again_neither_ends_the_wait_nor_the_pod() {
    let ready = ("True", "PartitionReady", "2025-12-01T00:00:00Z");
    for (mut seen, reported) in [
        (not_starting("2025-12-01T00:00:00Z"), "PodNotStarting"),
        (unschedulable(Some(ready)), "PartitionReady"),
    ] {
        seen.pod.start.state = StartState::PullingAgain;
        assert_eq!(decided(&seen, &around()), (None, Some(reported.to_owned())));
        assert_eq!(plan(&seen, &around()).requeue, None);
    }
}

#[test]
fn a_pod_that_its_node_prepares_is_looked_at_again() {
    let mut seen = not_starting("2026-01-01T00:50:01Z");
    seen.pod.start = Start {
        preparing_since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        ..Start::default()
    };
    assert_eq!(plan(&seen, &around()).requeue, Some(Duration::from_secs(5)));
}
