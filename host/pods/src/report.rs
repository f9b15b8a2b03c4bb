//! Pure: the content of a native Pod's condition, the time to write it, and the events of the Pod.

use std::time::Duration;

use ipu_api::labels::{IPU_RESOURCE, PARTITION_GATE, PARTITION_READY_CONDITION};
use ipu_api::pod_request::{ExistingPartition, annotation_path};
use ipu_runtime::clock;
use ipu_runtime::events::{Event, normal, warning};
use ipu_text::sanitize;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::partition::PartitionRef;
use crate::pod::NativePod;

/// Longest message of a condition, in bytes.
const MESSAGE: usize = 2_048;

/// Time between two writes of which only the message differs: with many Pods in the queue, the free
/// capacity in it changes all the time.
const REWRITE: SignedDuration = SignedDuration::from_secs(10);

/// Time in which most partitions are formed: before it, a condition would only repeat that the
/// partition is being created.
const PROGRESS: SignedDuration = SignedDuration::from_secs(2);

const FORMING: &str = "PartitionForming";

/// Reason of a Pod that has its partition and cannot start.
pub const NOT_STARTING: &str = "PodNotStarting";

/// Content of the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    is_ready: bool,
    reason: &'static str,
    message: String,
    event_type: EventType,
}

impl Report {
    /// The same as the reason of an eviction.
    pub fn disruption(&self) -> Disruption {
        Disruption {
            reason: self.reason,
            message: self.message.clone(),
        }
    }
}

/// The condition of a Pod that is evicted. Owners distinguish it by this from a failure of the
/// program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disruption {
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

/// The event that goes with a new reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventType {
    None,
    Normal,
    Warning,
}

/// Rule for the write of a condition.
#[derive(Debug, PartialEq)]
pub enum Due {
    /// It is unchanged.
    Never,
    /// After this delay, if it has not changed.
    Later(Duration),
    /// Now, with an event if the reason is new.
    Now(Box<(PodCondition, Option<Event>)>),
}

/// The partition is ready, and the Pod has it.
pub fn ready(partition_ref: &PartitionRef) -> Report {
    let message = format!(
        "partition {} on {}",
        partition_ref.id, partition_ref.controller.name
    );
    Report {
        is_ready: true,
        reason: "PartitionReady",
        message,
        event_type: EventType::Normal,
    }
}

/// Other controllers have to admit the Pod first: a Pod holds no IPUs while it waits in another
/// queue.
pub fn waiting_for_gates(others: &[String]) -> Report {
    let message = format!(
        "the partition is requested once {PARTITION_GATE} is the only scheduling gate; still there: {}",
        others.join(", ")
    );
    not_ready("WaitingForSchedulingGates", &message, EventType::None)
}

/// The partition is on its way.
pub fn forming() -> Report {
    let message = "the partition is being created; kubectl get ipupartitions shows the progress";
    not_ready(FORMING, message, EventType::None)
}

/// Something keeps the partition from being created.
pub fn waiting(why: &str) -> Report {
    not_ready("WaitingForPartition", why, EventType::Normal)
}

/// No V-IPU controller can ever create the partition.
pub fn rejected(why: &str) -> Report {
    let message = format!("the Pod can never start: {why}");
    not_ready("PartitionRejected", &message, EventType::Warning)
}

/// The API server refuses an object or a change that the Pod needs.
pub fn refused(why: &str) -> Report {
    not_ready("PartitionRefused", why, EventType::Warning)
}

/// Reports an invalid request of the Pod.
pub fn invalid(why: &str) -> Report {
    not_ready("InvalidRequest", why, EventType::Warning)
}

/// The named partition does not have the GCD.
pub fn no_such_gcd(existing: &ExistingPartition, gcds: u32) -> Report {
    let ExistingPartition { name, gcd } = existing;
    let why = format!(
        "{}: \"{gcd}\" does not exist in IPUPartition {name}, whose GCDs are 0 to {}; give one of these",
        annotation_path(ipu_api::labels::GCD_ANNOTATION),
        gcds.saturating_sub(1)
    );
    invalid(&why)
}

/// There is no partition of the name that the Pod may use. The message is the same if other users
/// have one.
pub fn not_found(name: &str, namespace: &str) -> Report {
    let message = format!(
        "there is no IPUPartition {name} that Pods of namespace {namespace} can share: its owner must be of this \
         namespace, and neither an IPUJob nor a Pod that requests {IPU_RESOURCE}"
    );
    not_ready("PartitionNotFound", &message, EventType::Warning)
}

/// Another client removed the gate before the Pod had a partition.
pub fn gate_removed() -> Report {
    let message = format!(
        "the scheduling gate {PARTITION_GATE} was removed before the partition was ready, so the Pod has no partition; \
         delete the Pod and create it again"
    );
    not_ready("GateRemoved", &message, EventType::Warning)
}

/// Another client deleted the IPUPartition, which waits for the Pod.
pub fn deleted(name: &str) -> Report {
    let message =
        format!("IPUPartition {name} was deleted; the operator releases it when no Pod uses it");
    not_ready("PartitionReleasing", &message, EventType::Warning)
}

/// The partition is gone or broken while the Pod runs.
pub fn lost(why: &str, is_replaced: bool) -> Report {
    let remedy = if is_replaced {
        "the operator evicts the Pod, and its owner creates another one"
    } else {
        "delete the Pod and create it again"
    };
    not_ready(
        "PartitionLost",
        &format!("{why}; {remedy}"),
        EventType::Warning,
    )
}

/// What happens to a Pod that has not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Its main container runs, and another one waits.
    Wait,
    /// The operator evicts it after this time, and its owner creates another one.
    Evict(Duration),
    /// A user corrects the cause.
    Correct,
}

/// The partition is ready, and the Pod has not started.
pub fn not_starting(obstacle: &str, remedy: Remedy) -> Report {
    let remedy = match remedy {
        Remedy::Wait => {
            "the Pod keeps its IPUs, because the container that uses them has started".to_owned()
        }
        Remedy::Evict(timeout) => format!(
            "the Pod holds its IPUs without using them; if it has not started after {} s, the operator evicts it, and \
             its owner creates another one",
            timeout.as_secs()
        ),
        Remedy::Correct => {
            "the Pod holds its IPUs without using them: correct the cause, or delete the Pod"
                .to_owned()
        }
    };
    not_ready(
        NOT_STARTING,
        &format!("{obstacle}; {remedy}"),
        EventType::Warning,
    )
}

/// The node of a terminating Pod is lost.
pub fn node_lost(node: &str, since: Timestamp, is_kept: bool) -> Report {
    let remedy = if is_kept {
        "the operator deletes no Pod of a StatefulSet by force, because its program may still run. If the node is \
         down, delete the Node, or set the taint node.kubernetes.io/out-of-service on it"
    } else {
        "the operator deletes the Pod by force and releases its IPUs"
    };
    let message = format!("node {node} has been unreachable since {since}; {remedy}");
    not_ready("NodeLost", &message, EventType::Warning)
}

fn not_ready(reason: &'static str, message: &str, event_type: EventType) -> Report {
    Report {
        is_ready: false,
        reason,
        message: sanitize(message, MESSAGE),
        event_type,
    }
}

/// Decides when the condition of a Pod is written.
pub fn due(pod: &NativePod, report: &Report, now: Timestamp) -> Due {
    let status = if report.is_ready { "True" } else { "False" };
    let old = pod.condition.as_ref();
    let reason = |condition: &PodCondition| condition.reason.as_deref() == Some(report.reason);
    let same = old.filter(|old| old.status == status && reason(old));
    if let Some(same) = same {
        if same.message.as_deref() == Some(report.message.as_str()) {
            return Due::Never;
        }
        let written = same.last_probe_time.as_ref();
        if let Some(delay) = written.and_then(|at| clock::remaining(at.0, REWRITE, now)) {
            return Due::Later(delay);
        }
    }
    if report.reason == FORMING && old.is_none() {
        let created = pod.created;
        if let Some(delay) = created.and_then(|at| clock::remaining(at, PROGRESS, now)) {
            return Due::Later(delay);
        }
    }
    let since = old.filter(|old| old.status == status);
    let since = since.and_then(|old| old.last_transition_time.clone());
    let condition = PodCondition {
        type_: PARTITION_READY_CONDITION.to_owned(),
        status: status.to_owned(),
        reason: Some(report.reason.to_owned()),
        message: Some(report.message.clone()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        ..PodCondition::default()
    };
    let event = if same.is_some() { None } else { event(report) };
    Due::Now(Box::new((condition, event)))
}

fn event(report: &Report) -> Option<Event> {
    let note = report.message.clone();
    match report.event_type {
        EventType::None => None,
        EventType::Normal => Some(normal(report.reason, "Partition", note)),
        EventType::Warning => Some(warning(report.reason, "Partition", note)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::native;

    fn at(second: i64) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        clock::later(start, SignedDuration::from_secs(second))
    }

    /// The Pod of the samples after a condition was written, and the reason of the event.
    fn write(pod: &NativePod, report: &Report, now: i64) -> (NativePod, Option<&'static str>) {
        let Due::Now(due) = due(pod, report, at(now)) else {
            panic!("{report:?} is due");
        };
        let (condition, event) = *due;
        let mut written = pod.clone();
        written.condition = Some(condition);
        (written, event.map(|event| event.reason))
    }

    #[test]
    fn a_changing_message_is_written_at_intervals_with_one_event() {
        let full = |free: u32| waiting(&format!("pod1:8090: {free} IPUs are free"));
        let (pod, event) = write(&native(|_| {}), &full(1), 0);
        assert_eq!(event, Some("WaitingForPartition"));
        assert_eq!(due(&pod, &full(1), at(1)), Due::Never);
        let later = Due::Later(Duration::from_secs(7));
        assert_eq!(due(&pod, &full(2), at(3)), later);
        let (pod, event) = write(&pod, &full(2), 10);
        assert_eq!(event, None);
        let (pod, event) = write(&pod, &rejected("too large"), 11);
        assert_eq!(event, Some("PartitionRejected"));
        assert_eq!(write(&pod, &full(2), 12).1, Some("WaitingForPartition"));
    }

    #[test]
    fn the_transition_time_moves_with_the_status() {
        let since = |pod: &NativePod| {
            let condition = pod.condition.clone().unwrap();
            condition.last_transition_time.unwrap().0
        };
        let (first, _) = write(&native(|_| {}), &waiting("full"), 5);
        let (second, _) = write(&first, &rejected("too large"), 7);
        assert_eq!((since(&first), since(&second)), (at(5), at(5)));
        let (third, event) = write(&second, &ready(&crate::samples::partition_ref("p-web")), 9);
        assert_eq!((since(&third), event), (at(9), Some("PartitionReady")));
    }

    #[test]
    fn progress_is_reported_only_of_slow_partitions() {
        let pod = native(|_| {});
        let later = Due::Later(Duration::from_secs(1));
        assert_eq!(due(&pod, &forming(), at(1)), later);
        let (pod, event) = write(&pod, &forming(), 2);
        assert_eq!(event, None);
        assert_eq!(due(&pod, &forming(), at(3)), Due::Never);
    }
}
