//! Counts the coverage points that a written status meets.

use ipu_api::ipupartition::{AttemptOutcome, IPUPartitionStatus, PartitionPhase};
use ipu_api::partition_conditions;
use ipu_ledger::observations::Intent;

use super::coverage::{Coverage, CoveragePoint};
use super::invariants::StatusWrite;

/// Counts the coverage points of this status.
pub(super) fn count(written: &StatusWrite<'_>, coverage: &mut Coverage) {
    phase(written, coverage);
    attempts(written, coverage);
    let (before, after) = (written.before, written.after);
    if let (None, Some(id)) = (&before.partition_id, &after.partition_id) {
        coverage.count(if written.evidence.unanswered.contains(id) {
            CoveragePoint::AdoptedLostReply
        } else if written.evidence.asked.contains(id) {
            CoveragePoint::Adopted
        } else {
            CoveragePoint::AdoptedByAnother
        });
    }
    if before.observed_reset_generation < after.observed_reset_generation {
        let id = after.partition_id.as_deref().unwrap_or_default();
        if written.evidence.reset.contains(id) {
            coverage.count(CoveragePoint::ResetObserved);
        }
    }
    if matches!(written.intent, Some(Intent::Create(_))) {
        for held in before.attempts.iter().filter(|one| one.is_held()) {
            let is_unreachable = written.evidence.unreachable.contains(&held.id);
            coverage.count(if is_unreachable {
                CoveragePoint::SecondController
            } else {
                CoveragePoint::WhileHeld
            });
        }
    }
    let is_missed =
        |status: &IPUPartitionStatus| partition_conditions::missing_since(status).is_some();
    if after.phase == PartitionPhase::Resetting && is_missed(before) && !is_missed(after) {
        coverage.count(CoveragePoint::MissedInReset);
    }
}

fn phase(written: &StatusWrite<'_>, coverage: &mut Coverage) {
    use PartitionPhase as Phase;
    let (before, after) = (written.before, written.after);
    let is_dropped = before.partition_id.is_some() && after.partition_id.is_none();
    let point = match (before.phase, after.phase) {
        (Phase::Creating, Phase::Pending) if is_dropped => CoveragePoint::FormationFailed,
        (Phase::Resetting, Phase::Pending) if is_dropped => CoveragePoint::Replaced,
        (Phase::Ready, Phase::Pending) if is_dropped => CoveragePoint::Left,
        (Phase::Ready, Phase::Ready)
            if partition_conditions::draining_since(before).is_none()
                && partition_conditions::draining_since(after).is_some() =>
        {
            CoveragePoint::DrainRequested
        }
        (Phase::Error, Phase::Ready) => CoveragePoint::Recovered,
        (Phase::Resetting, Phase::Ready)
            if written
                .evidence
                .in_use
                .contains(after.partition_id.as_deref().unwrap_or_default()) =>
        {
            CoveragePoint::ResetPutOff
        }
        (old, Phase::Ready) if old != Phase::Ready => CoveragePoint::BecameReady,
        (old, Phase::Error) if old != Phase::Error && is_dropped => CoveragePoint::Vanished,
        (old, Phase::Error) if old != Phase::Error => CoveragePoint::Failed,
        (old, Phase::Rejected) if old != Phase::Rejected => CoveragePoint::Rejected,
        (_, Phase::Pending) if !after.waiting.is_empty() => CoveragePoint::WaitsForCapacity,
        _ => return,
    };
    coverage.count(point);
}

fn attempts(written: &StatusWrite<'_>, coverage: &mut Coverage) {
    for old in &written.before.attempts {
        let mut now = written.after.attempts.iter().filter(|one| one.id == old.id);
        let Some(new) = now.next() else { continue };
        let is_used = written.after.partition_id.as_ref() == Some(&new.id);
        coverage.count(match (old.outcome, new.outcome) {
            (AttemptOutcome::Unknown, AttemptOutcome::Refused) => CoveragePoint::Refused,
            (AttemptOutcome::Unknown, AttemptOutcome::Removed) => CoveragePoint::NotFound,
            (AttemptOutcome::Unknown, AttemptOutcome::Created) if !is_used => {
                CoveragePoint::FoundLater
            }
            _ => continue,
        });
    }
}
