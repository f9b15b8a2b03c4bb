//! Tells what a written status means, for the count of what a simulation has met.

use ipu_api::ipupartition::{AttemptOutcome, IPUPartitionStatus, PartitionPhase};
use ipu_api::partition_conditions;

use super::coverage::{Coverage, Sight};
use super::invariants::StatusWrite;
use crate::observations::Intent;

/// Counts what this status tells.
pub(super) fn count(written: &StatusWrite<'_>, coverage: &mut Coverage) {
    phase(written, coverage);
    attempts(written, coverage);
    let (before, after) = (written.before, written.after);
    if let (None, Some(id)) = (&before.partition_id, &after.partition_id) {
        coverage.count(if written.evidence.unanswered.contains(id) {
            Sight::AdoptedLostReply
        } else if written.evidence.asked.contains(id) {
            Sight::Adopted
        } else {
            Sight::AdoptedByAnother
        });
    }
    if before.observed_reset_generation < after.observed_reset_generation {
        let id = after.partition_id.as_deref().unwrap_or_default();
        if written.evidence.reset.contains(id) {
            coverage.count(Sight::ResetObserved);
        }
    }
    if matches!(written.intent, Some(Intent::Create(_))) {
        for held in before.attempts.iter().filter(|one| one.is_held()) {
            let is_unreachable = written.evidence.unreachable.contains(&held.id);
            coverage.count(if is_unreachable {
                Sight::SecondController
            } else {
                Sight::WhileHeld
            });
        }
    }
    let is_missed =
        |status: &IPUPartitionStatus| partition_conditions::missing_since(status).is_some();
    if after.phase == PartitionPhase::Resetting && is_missed(before) && !is_missed(after) {
        coverage.count(Sight::MissedInReset);
    }
}

fn phase(written: &StatusWrite<'_>, coverage: &mut Coverage) {
    use PartitionPhase as Phase;
    let (before, after) = (written.before, written.after);
    let is_dropped = before.partition_id.is_some() && after.partition_id.is_none();
    let sight = match (before.phase, after.phase) {
        (Phase::Creating, Phase::Pending) if is_dropped => Sight::Stillborn,
        (Phase::Resetting, Phase::Pending) if is_dropped => Sight::Replaced,
        (Phase::Ready, Phase::Pending) if is_dropped => Sight::Left,
        (Phase::Ready, Phase::Ready)
            if partition_conditions::draining_since(before).is_none()
                && partition_conditions::draining_since(after).is_some() =>
        {
            Sight::AskedToLeave
        }
        (Phase::Error, Phase::Ready) => Sight::Recovered,
        (Phase::Resetting, Phase::Ready)
            if written
                .evidence
                .in_use
                .contains(after.partition_id.as_deref().unwrap_or_default()) =>
        {
            Sight::ResetPutOff
        }
        (old, Phase::Ready) if old != Phase::Ready => Sight::BecameReady,
        (old, Phase::Error) if old != Phase::Error && is_dropped => Sight::Vanished,
        (old, Phase::Error) if old != Phase::Error => Sight::Failed,
        (old, Phase::Rejected) if old != Phase::Rejected => Sight::Rejected,
        (_, Phase::Pending) if !after.waiting.is_empty() => Sight::WaitsForRoom,
        _ => return,
    };
    coverage.count(sight);
}

fn attempts(written: &StatusWrite<'_>, coverage: &mut Coverage) {
    for old in &written.before.attempts {
        let mut now = written.after.attempts.iter().filter(|one| one.id == old.id);
        let Some(new) = now.next() else { continue };
        let is_used = written.after.partition_id.as_ref() == Some(&new.id);
        coverage.count(match (old.outcome, new.outcome) {
            (AttemptOutcome::Unknown, AttemptOutcome::Refused) => Sight::Refused,
            (AttemptOutcome::Unknown, AttemptOutcome::Removed) => Sight::NotFound,
            (AttemptOutcome::Unknown, AttemptOutcome::Created) if !is_used => Sight::FoundLater,
            _ => continue,
        });
    }
}
