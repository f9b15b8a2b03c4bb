//! Pure: the Kubernetes events for changes of the status of an IPUPartition.

use ipu_api::ipupartition::{Attempt, IPUPartitionStatus, PartitionOwner, PartitionPhase};
use ipu_api::ipupolicy::BUILT_IN;
use ipu_ledger::state_unknown;
use ipu_runtime::events::{self, Event};

/// Whether the sweep removes a partition that was abandoned by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// Once its controller answers.
    Later,
    /// Its controller is not in the admin's list, and is not swept.
    OnceListed,
    /// Its id carries no mark of this cluster.
    Never,
}

/// The event for the change from one status to the next, if any. Waiting is reported once, not with
/// each change of the free IPUs.
pub(crate) fn of_change(before: &IPUPartitionStatus, after: &IPUPartitionStatus) -> Option<Event> {
    if let Some((reason, message)) = state_unknown::to_fix(after)
        && state_unknown::of(before) != Some(reason)
    {
        return Some(warning(reason, message.to_owned()));
    }
    let is_new = before.phase != after.phase;
    let message = || after.message.clone().unwrap_or_default();
    match after.phase {
        PartitionPhase::Creating if before.generation != after.generation => chosen(after),
        // The owner reports the creation.
        PartitionPhase::Ready if is_new && before.phase != PartitionPhase::Creating => {
            Some(normal("Ready", message()))
        }
        PartitionPhase::Error if is_new => Some(warning("Failed", message())),
        PartitionPhase::Rejected if is_new => Some(warning("Rejected", message())),
        PartitionPhase::Resetting if is_new => Some(normal("Resetting", message())),
        PartitionPhase::Pending if before.waiting.is_empty() && !after.waiting.is_empty() => {
            Some(normal("Waiting", message()))
        }
        PartitionPhase::Pending if before.partition_id.is_some() => {
            Some(warning("Replacing", message()))
        }
        PartitionPhase::Pending
        | PartitionPhase::Creating
        | PartitionPhase::Ready
        | PartitionPhase::Resetting
        | PartitionPhase::Error
        | PartitionPhase::Rejected
        | PartitionPhase::Releasing => None,
    }
}

/// The decision of a policy. Decisions of the built-in guest are not reported.
fn chosen(status: &IPUPartitionStatus) -> Option<Event> {
    let attempt = status.attempts.last()?;
    let by = attempt.decided_by.as_ref()?;
    let digest = by.digest.as_ref().filter(|_| by.policy != BUILT_IN)?;
    let message = format!(
        "the guest of IPUPolicy {} ({digest}) chose {} for partition {}",
        by.policy, attempt.controller.name, attempt.id
    );
    Some(normal("Placed", message))
}

/// The event of an object that is removed, with the partitions that were abandoned by force: those
/// that the sweep removes later, and those that only a user can remove, because another cluster or
/// Graphcore's operator generated the id. An IPUJob reports the release itself, and the object
/// exists until nothing is left.
pub(crate) fn of_release(
    owner: &PartitionOwner,
    status: &IPUPartitionStatus,
    abandoned: &[Attempt],
    sweep: impl Fn(&Attempt) -> Sweep,
) -> Option<Event> {
    let describe = |(fate, what): (Sweep, &str)| {
        let each = abandoned.iter().filter(|attempt| sweep(attempt) == fate);
        let each = each.map(|attempt| format!("{} on {}", attempt.id, attempt.controller.name));
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("given up by force; {what}: {}", each.join(", ")))
    };
    let fates = [
        (
            Sweep::Later,
            "the sweep removes these partitions when their controller answers and no Pod uses them",
        ),
        (
            Sweep::OnceListed,
            "the sweep removes these partitions when their controller is in the list again; or remove them by \
             hand when no Pod uses them",
        ),
        (
            Sweep::Never,
            "the sweep does not recognise these partitions; remove them by hand when no Pod uses them",
        ),
    ];
    let texts: Vec<String> = fates.into_iter().filter_map(describe).collect();
    if !texts.is_empty() {
        return Some(warning("Abandoned", texts.join("; ")));
    }
    if owner.is_job() {
        return None;
    }
    let id = status.attempts.last().map(|attempt| attempt.id.as_str())?;
    let message = format!("nothing is left of partition {id} on any controller");
    Some(normal("Removed", message))
}

/// The event of an object that cannot be read.
pub(crate) fn of_unreadable(problem: &str) -> Event {
    let message = format!(
        "ignored, because {problem}. Correct the field, or delete the IPUPartition and remove its \
         finalizer: the sweep then removes its partitions when no Pod uses them"
    );
    warning("Unreadable", message)
}

fn normal(reason: &'static str, message: String) -> Event {
    events::normal(reason, reason, message)
}

fn warning(reason: &'static str, message: String) -> Event {
    events::warning(reason, reason, message)
}

#[cfg(test)]
mod tests {
    use ipu_api::ipupartition::{AttemptOutcome, DecidedBy, WaitingReason};
    use ipu_placement::samples;

    use super::*;

    fn status(phase: PartitionPhase) -> IPUPartitionStatus {
        IPUPartitionStatus {
            phase,
            message: Some("said".to_owned()),
            ..IPUPartitionStatus::default()
        }
    }

    fn owner(kind: &str) -> PartitionOwner {
        PartitionOwner {
            api_version: ipu_api::API_VERSION.to_owned(),
            kind: kind.to_owned(),
            namespace: "default".to_owned(),
            name: "mnist".to_owned(),
            uid: "uid".to_owned(),
        }
    }

    #[test]
    fn an_event_reports_a_phase_when_it_is_entered() {
        let cases = [
            (PartitionPhase::Ready, Some("Ready")),
            (PartitionPhase::Error, Some("Failed")),
            (PartitionPhase::Rejected, Some("Rejected")),
            (PartitionPhase::Resetting, Some("Resetting")),
            (PartitionPhase::Creating, None),
            (PartitionPhase::Releasing, None),
        ];
        for (phase, expected) in cases {
            let entered = of_change(&status(PartitionPhase::Pending), &status(phase));
            assert_eq!(entered.map(|event| event.reason), expected, "{phase:?}");
            assert_eq!(of_change(&status(phase), &status(phase)), None, "{phase:?}");
        }
    }

    #[test]
    fn an_event_names_the_module_that_chose_the_controller() {
        let before = status(PartitionPhase::Pending);
        let of = |policy: &str| IPUPartitionStatus {
            generation: 1,
            attempts: vec![Attempt {
                controller: samples::controller(),
                id: "p-1".to_owned(),
                outcome: AttemptOutcome::Unknown,
                reason: None,
                exhausted: None,
                started: None,
                decided_by: Some(DecidedBy {
                    policy: policy.to_owned(),
                    digest: Some("sha256:ab".to_owned()),
                }),
                account: None,
            }],
            ..status(PartitionPhase::Creating)
        };
        assert_eq!(of_change(&before, &of(BUILT_IN)), None);
        let after = of("best-fit");
        let event = of_change(&before, &after).unwrap();
        assert_eq!(
            (event.reason, event.note.as_str()),
            (
                "Placed",
                "the guest of IPUPolicy best-fit (sha256:ab) chose pod1:8090 for partition p-1"
            )
        );
        assert_eq!(of_change(&after, &after), None, "it is reported once");
    }

    #[test]
    fn a_formed_partition_has_no_event_and_a_reset_one_has() {
        let forming = status(PartitionPhase::Creating);
        assert_eq!(of_change(&forming, &status(PartitionPhase::Ready)), None);
        let reset = status(PartitionPhase::Resetting);
        let again = of_change(&reset, &status(PartitionPhase::Ready));
        assert_eq!(again.map(|event| event.reason), Some("Ready"));
    }

    #[test]
    fn what_is_given_up_by_force_says_who_removes_it() {
        let attempt = |id: &str| Attempt {
            controller: samples::controller(),
            id: id.to_owned(),
            outcome: AttemptOutcome::Created,
            reason: None,
            exhausted: None,
            started: None,
            decided_by: None,
            account: None,
        };
        let (marked, other) = (attempt("p-mnist-1"), attempt("p-mnist-default-0"));
        let unlisted = attempt("p-mnist-2");
        let of = |abandoned: &[&Attempt]| {
            let abandoned: Vec<Attempt> = abandoned.iter().copied().cloned().collect();
            let sweep = |one: &Attempt| match one {
                one if *one == marked => Sweep::Later,
                one if *one == unlisted => Sweep::OnceListed,
                _ => Sweep::Never,
            };
            let status = status(PartitionPhase::Releasing);
            let event = of_release(&owner("IPUJob"), &status, &abandoned, sweep);
            event.map(|event| event.note)
        };
        assert_eq!(of(&[]), None);
        let swept = "given up by force; the sweep removes these partitions when their controller answers and no \
                     Pod uses them: p-mnist-1 on pod1:8090";
        assert_eq!(of(&[&marked]).as_deref(), Some(swept));
        let listed = "given up by force; the sweep removes these partitions when their controller is in the list \
                      again; or remove them by hand when no Pod uses them: p-mnist-2 on pod1:8090";
        assert_eq!(of(&[&unlisted]).as_deref(), Some(listed));
        let left = "given up by force; the sweep does not recognise these partitions; remove them by hand when no \
                    Pod uses them: p-mnist-default-0 on pod1:8090";
        assert_eq!(of(&[&other]).as_deref(), Some(left));
        let all = of(&[&other, &unlisted, &marked]);
        assert_eq!(all, Some(format!("{swept}; {listed}; {left}")));
    }

    #[test]
    fn a_removal_is_reported_where_no_job_reports_it() {
        let attempt = samples::attempt(samples::controller(), "p-1", AttemptOutcome::Created);
        let status = IPUPartitionStatus {
            attempts: vec![attempt],
            ..status(PartitionPhase::Releasing)
        };
        for (kind, expected) in [("IPUJob", None), ("Notebook", Some("Removed"))] {
            let event = of_release(&owner(kind), &status, &[], |_| Sweep::Never);
            assert_eq!(event.map(|event| event.reason), expected, "{kind}");
        }
    }

    #[test]
    fn waiting_is_reported_once() {
        let mut waiting = status(PartitionPhase::Pending);
        waiting.waiting = vec![WaitingReason {
            controller: "pod1:8090".to_owned(),
            reason: "full".to_owned(),
        }];
        let first = of_change(&status(PartitionPhase::Pending), &waiting);
        assert_eq!(first.map(|event| event.reason), Some("Waiting"));
        let mut fuller = waiting.clone();
        fuller.waiting[0].reason = "fuller".to_owned();
        assert_eq!(of_change(&waiting, &fuller), None);
    }
}
