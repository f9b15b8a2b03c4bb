//! Pure: the statuses of a partition that waits, or that no controller can ever create.

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartitionStatus, PartitionPhase, WaitingReason,
};
use ipu_api::partition_conditions::ready;
use ipu_text::sanitize;
use jiff::{SignedDuration, Timestamp};

use super::{current, named_reasons};

/// Longest message of a waiting partition, in bytes. `status.waiting` has the reason of each named
/// controller whole.
const MESSAGE_MAX: usize = 4_096;

/// Time for which a controller that has refused is skipped for the same slot: the reason may be
/// another one than capacity, and the refusal would repeat.
const REFUSAL_LIFETIME: SignedDuration = SignedDuration::from_secs(10);

/// No controller can serve it now. This ends the round of attempts. Only recent refusals count in
/// the next one. Reasons that differ only in figures stay as they are: a figure moves whenever
/// anybody gets or releases IPUs, and thousands of statuses would be written each time.
pub fn waiting(
    status: &IPUPartitionStatus,
    reasons: &[WaitingReason],
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = without_strange_partition(status);
    next.phase = PartitionPhase::Pending;
    let reasons = named_reasons::condensed(reasons, &status.waiting);
    let is_known = status.phase == PartitionPhase::Pending
        && named_reasons::are_alike(&status.waiting, &reasons);
    if !is_known {
        next.waiting = reasons;
    }
    next.attempts
        .retain(|attempt| attempt.is_held() || is_fresh_refusal(attempt, now));
    let message = if next.waiting.is_empty() {
        "no V-IPU controller is configured; the admin's list of controllers is empty".to_owned()
    } else {
        let each: Vec<String> = next
            .waiting
            .iter()
            .map(|reason| format!("{}: {}", reason.controller, reason.reason))
            .collect();
        let all = format!("no V-IPU controller can serve it now; {}", each.join("; "));
        sanitize(&all, MESSAGE_MAX)
    };
    ready(next, false, "Waiting", message, now)
}

/// No controller can ever create it.
pub(crate) fn rejected(
    status: &IPUPartitionStatus,
    why: &str,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = without_strange_partition(status);
    next.phase = PartitionPhase::Rejected;
    next.waiting.clear();
    next.attempts.retain(Attempt::is_held);
    ready(next, false, "Rejected", why.to_owned(), now)
}

/// The status without a partition that no attempt lists. A user wrote it: the request would leave
/// the queue, and count as placed.
fn without_strange_partition(status: &IPUPartitionStatus) -> IPUPartitionStatus {
    let mut next = status.clone();
    if current(status).is_none() {
        next.partition_id = None;
        next.first_ipu = None;
        next.controller = None;
    }
    next
}

fn is_fresh_refusal(attempt: &Attempt, now: Timestamp) -> bool {
    let started = attempt.started.as_ref();
    // The start is in the future if the clock was set back.
    attempt.outcome == AttemptOutcome::Refused
        && started.is_some_and(|started| now.duration_since(started.0).abs() < REFUSAL_LIFETIME)
}

#[cfg(test)]
mod tests {
    use ipu_api::ipupartition::ControllerRef;

    use super::*;
    use crate::status::attempts::unsettled;

    fn controller() -> ControllerRef {
        serde_json::from_value(serde_json::json!({
            "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
        }))
        .unwrap()
    }

    #[test]
    fn a_partition_that_no_attempt_lists_takes_no_request_out_of_the_queue() {
        let now = Timestamp::UNIX_EPOCH;
        let written = IPUPartitionStatus {
            phase: PartitionPhase::Ready,
            partition_id: Some("p-other".to_owned()),
            controller: Some(controller()),
            attempts: vec![unsettled(controller(), "p-1".to_owned(), now)],
            ..IPUPartitionStatus::default()
        };
        for next in [waiting(&written, &[], now), rejected(&written, "no", now)] {
            assert_eq!((next.partition_id, next.controller), (None, None));
            assert_eq!(next.attempts.len(), 1);
        }
    }

    #[test]
    fn reasons_that_differ_only_in_figures_stay_as_they_are() {
        let reason = |text: &str| WaitingReason {
            controller: "pod1".to_owned(),
            reason: text.to_owned(),
        };
        let known = "15 of its 16 IPUs are used, and it is reserved for default/job-1 (8 IPUs)";
        let status = IPUPartitionStatus {
            phase: PartitionPhase::Pending,
            waiting: vec![reason(known)],
            ..IPUPartitionStatus::default()
        };
        let now = Timestamp::UNIX_EPOCH;
        for (text, is_new) in [
            (
                "3 of its 16 IPUs are used, and it is reserved for default/job-1 (4 IPUs)",
                false,
            ),
            (
                "15 of its 16 IPUs are used, and it is reserved for default/job-2 (8 IPUs)",
                true,
            ),
            ("it does not answer", true),
        ] {
            let next = waiting(&status, &[reason(text)], now);
            let expected = if is_new { text } else { known };
            assert_eq!(next.waiting, [reason(expected)]);
            assert!(next.message.unwrap_or_default().ends_with(expected));
        }
        let next = waiting(&status, &[], now);
        assert!(next.waiting.is_empty());
        let created = IPUPartitionStatus {
            phase: PartitionPhase::Creating,
            ..status
        };
        let text = known.replace("15", "2");
        assert_eq!(
            waiting(&created, &[reason(&text)], now).waiting,
            [reason(&text)]
        );
    }

    #[test]
    fn a_refusal_is_fresh_for_seconds_whatever_became_of_the_clock() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let refused = |second| Attempt {
            outcome: AttemptOutcome::Refused,
            ..unsettled(controller(), "p-1".to_owned(), at(second))
        };
        // The clock was set back by an hour in the last case.
        for (started, expected) in [(95, 1), (85, 0), (105, 1), (3_700, 0)] {
            let status = IPUPartitionStatus {
                attempts: vec![refused(started)],
                ..IPUPartitionStatus::default()
            };
            let waiting = waiting(&status, &[], at(100));
            assert_eq!(waiting.attempts.len(), expected, "begun at {started}");
        }
    }
}
