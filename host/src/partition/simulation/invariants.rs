//! What must hold at every step, whatever goes wrong; a breach ends the run and names the rule.

use std::collections::{BTreeMap, BTreeSet};

use super::agenda::Ticket;
use super::api_server::Key;
use super::controllers::Verb;
use super::driver;
use super::evidence::Evidence;
use crate::api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase,
};
use crate::partition::knowledge::Intent;

/// The rules, as they are named where one is broken.
pub(super) const RECORDED_FIRST: &str = "an id is written down before its controller is asked";
pub(super) const NEVER_TWICE: &str = "no id is used twice";
pub(super) const TRUTH_FIRST: &str = "no other controller is asked before the truth of an earlier attempt is known or cannot be asked";
pub(super) const NOT_FORGOTTEN: &str = "what may be left on a controller is not forgotten before the controller has said that it is not there";
pub(super) const ONE_PARTITION: &str = "a slot's partition is never exchanged under it";
pub(super) const NOT_TAKEN_BACK: &str = "what was given up is never taken back";
pub(super) const SEEN_ACTIVE: &str = "only what was seen active is offered";
pub(super) const ONE_USABLE: &str = "a slot never has two usable partitions";
pub(super) const NOT_IN_USE: &str = "nothing is removed or reset while a live Pod uses it";
pub(super) const NOTHING_LEFT: &str =
    "an object goes only when nothing of it is left on any controller";
pub(super) const OURS_ONLY: &str = "what is not ours is never touched";
pub(super) const OWNERLESS_ONLY: &str = "only what nobody owns is swept";
pub(super) const BOUNDED: &str = "whoever has waited longest is passed by others for a time only";
pub(super) const WHOLE: &str = "a gang is wholly served, or holds nothing beyond its patience";
pub(super) const STEADY: &str = "once the trouble is over, no status is written again and again";
pub(super) const LIVENESS: &str = "once the trouble is over, everything comes to its end";

/// What was written down and asked for in the whole run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Every id that was ever written down: for which object and controller, and by which reconcile.
    recorded: BTreeMap<String, Recorded>,
    asked: BTreeSet<String>,
    /// Resets that were written down and not sent yet.
    resets: BTreeMap<String, Ticket>,
    /// Ids of which their controller has said that it has nothing.
    denied: BTreeSet<String>,
    /// Ids that were given up by force.
    abandoned: BTreeSet<String>,
}

#[derive(Debug)]
struct Recorded {
    key: Key,
    controller: String,
    by: Ticket,
}

/// A status that was written: by whom, and what with.
pub(super) struct Written<'a> {
    pub ticket: Ticket,
    pub intent: Option<&'a Intent>,
    pub before: &'a IPUPartitionStatus,
    pub after: &'a IPUPartitionStatus,
    pub evidence: &'a Evidence,
}

/// Ends the run unless the rule holds.
pub(super) fn demand(holds: bool, rule: &str, what: impl FnOnce() -> String) {
    assert!(holds, "broken invariant: {rule}: {}", what());
}

impl Ledger {
    /// A status took the place of another.
    pub(super) fn status_written(&mut self, written: &Written<'_>) {
        let (before, after) = (written.before, written.after);
        demand(after.generation >= before.generation, NEVER_TWICE, || {
            format!(
                "generation {} after {}",
                after.generation, before.generation
            )
        });
        let known: BTreeSet<&str> = before.attempts.iter().map(|one| one.id.as_str()).collect();
        for attempt in &after.attempts {
            if !known.contains(attempt.id.as_str()) {
                self.begun(written, attempt);
            }
        }
        let held = before.attempts.iter().filter(|one| driver::is_held(one));
        for attempt in held.filter(|one| driver::is_ours(&one.id)) {
            let mut now = after.attempts.iter().filter(|one| one.id == attempt.id);
            let is_kept = now.next().is_some_and(driver::is_held);
            demand(
                is_kept || written.evidence.absent.contains(&attempt.id),
                NOT_FORGOTTEN,
                || format!("{attempt:?}"),
            );
        }
        partition_changed(written);
        if let Some(Intent::Reset(id)) = written.intent {
            self.resets.insert(id.clone(), written.ticket);
        }
    }

    fn begun(&mut self, written: &Written<'_>, attempt: &Attempt) {
        let is_intent = matches!(written.intent, Some(Intent::Create(id)) if *id == attempt.id);
        demand(
            is_intent && attempt.outcome == AttemptOutcome::Unknown,
            RECORDED_FIRST,
            || {
                format!(
                    "{attempt:?} appears, and the intent is {:?}",
                    written.intent
                )
            },
        );
        let recorded = Recorded {
            key: written.ticket.key,
            controller: attempt.controller.name.clone(),
            by: written.ticket,
        };
        let earlier = self.recorded.insert(attempt.id.clone(), recorded);
        demand(earlier.is_none(), NEVER_TWICE, || {
            format!("{} was written down before: {earlier:?}", attempt.id)
        });
        for other in written
            .before
            .attempts
            .iter()
            .filter(|one| driver::is_held(one))
        {
            demand(
                written.evidence.unreachable.contains(&other.id),
                TRUTH_FIRST,
                || format!("{} is begun, and there is {other:?}", attempt.id),
            );
        }
    }

    /// A controller is about to be asked to make a partition.
    pub(super) fn create_sent(&mut self, attempt: &Attempt, ticket: Ticket) {
        let id = &attempt.id;
        let recorded = self.recorded.get(id);
        let is_recorded = recorded
            .is_some_and(|one| one.key == ticket.key && one.controller == attempt.controller.name);
        demand(is_recorded, RECORDED_FIRST, || {
            format!("{id}: {recorded:?}")
        });
        demand(self.asked.insert(id.clone()), NEVER_TWICE, || {
            format!("{id} is asked for again")
        });
        demand(
            recorded.is_some_and(|one| one.by == ticket),
            RECORDED_FIRST,
            || format!("{id} was written down by another reconcile: {recorded:?}"),
        );
    }

    /// A controller is about to be asked to reset a partition.
    pub(super) fn reset_sent(&mut self, id: &str, ticket: Ticket) {
        let by = self.resets.remove(id);
        demand(by == Some(ticket), RECORDED_FIRST, || {
            format!("the reset of {id} was written down by {by:?}")
        });
    }

    /// A call takes effect on a controller.
    pub(super) fn took_effect(id: &str, verb: Verb, users: &[String]) {
        let harms = matches!(verb, Verb::Remove { .. } | Verb::Reset);
        demand(!harms || users.is_empty(), NOT_IN_USE, || {
            format!("{verb:?} of {id}, which {users:?} use")
        });
        demand(driver::is_ours(id), OURS_ONLY, || {
            format!("{verb:?} of {id}")
        });
    }

    /// A controller has said that it has nothing of this id.
    pub(super) fn denied(&mut self, id: &str) {
        self.denied.insert(id.to_owned());
    }

    pub(super) fn was_denied(&self, id: &str) -> bool {
        self.denied.contains(id)
    }

    pub(super) fn was_abandoned(&self, id: &str) -> bool {
        self.abandoned.contains(id)
    }

    /// An object's finalizer has gone. `is_there` tells whether an id is on some controller now.
    pub(super) fn released(
        &mut self,
        key: Key,
        object: &IPUPartition,
        is_forced: bool,
        is_there: impl Fn(&str) -> bool,
    ) {
        let status = object.status.clone().unwrap_or_default();
        let of_it = self.recorded.iter().filter(|(_, one)| one.key == key);
        for (id, _) in of_it.filter(|(id, _)| is_there(id)) {
            // A late call made it after the controller had denied it: the sweep's work.
            let is_excused = is_forced || self.denied.contains(id);
            demand(
                is_excused || self.abandoned.contains(id),
                NOTHING_LEFT,
                || format!("{id} is there, and {status:?} goes"),
            );
        }
        if is_forced {
            let held = status.attempts.into_iter().filter(driver::is_held);
            self.abandoned.extend(held.map(|attempt| attempt.id));
        }
    }
}

fn partition_changed(written: &Written<'_>) {
    let (before, after) = (written.before, written.after);
    match (&before.partition_id, &after.partition_id) {
        (Some(old), Some(new)) => demand(old == new, ONE_PARTITION, || {
            format!("{new} takes the place of {old}")
        }),
        (None, Some(new)) => {
            let mut earlier = before.attempts.iter().filter(|one| one.id == *new);
            let outcome = earlier.next().map(|one| one.outcome);
            demand(
                outcome == Some(AttemptOutcome::Unknown),
                NOT_TAKEN_BACK,
                || format!("{new} is taken, and its outcome was {outcome:?}"),
            );
        }
        (Some(_) | None, None) => {}
    }
    let becomes_ready = after.phase == PartitionPhase::Ready && before.phase != after.phase;
    let id = after.partition_id.as_deref().unwrap_or_default();
    // A reset that is put off for a Pod leaves the partition as it was.
    let is_put_off =
        before.phase == PartitionPhase::Resetting && written.evidence.in_use.contains(id);
    if becomes_ready && !is_put_off {
        demand(written.evidence.active.contains(id), SEEN_ACTIVE, || {
            format!("{id:?} becomes Ready")
        });
    }
}
