//! What must hold at every step, whatever goes wrong; a breach ends the run and names the rule.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase,
};

use super::api_server::Key;
use super::controllers::Verb;
use super::event_queue::Ticket;
use super::evidence::Evidence;
use super::sim_adapter;
use crate::observations::Intent;

/// The rules, as they are named where one is broken.
pub(crate) const RECORDED_FIRST: &str = "an id is written down before its controller is asked";
pub(crate) const NEVER_TWICE: &str = "no id is used twice";
pub(crate) const TRUTH_FIRST: &str = "no other controller is asked before the truth of an earlier attempt is known or cannot be asked, or it was asked to go and nobody uses it";
pub(crate) const NOT_FORGOTTEN: &str = "what may be left on a controller is not forgotten before the controller has said that it is not there";
pub(crate) const ONE_PARTITION: &str = "a slot's partition is never exchanged under it";
pub(crate) const NOT_TAKEN_BACK: &str = "what was given up is never taken back";
pub(crate) const SEEN_ACTIVE: &str = "only what was seen active is offered";
pub(crate) const ONE_USABLE: &str = "a slot never has two usable partitions";
pub(crate) const NOT_IN_USE: &str = "nothing is removed or reset while a live Pod uses it";
pub(crate) const NOTHING_LEFT: &str =
    "an object goes only when nothing of it is left on any controller";
pub(crate) const NOT_ASSIGNED_TWICE: &str = "IPUs that a live Pod uses are given to nobody else";
pub(crate) const NOT_GIVEN_UP_EARLY: &str =
    "a partition is given up only once its controller has lacked it for the grace";
pub(crate) const OURS_ONLY: &str = "what is not ours is never touched";
pub(crate) const OWNERLESS_ONLY: &str = "only what nobody owns is swept";
pub(crate) const BOUNDED: &str = "whoever has waited longest is passed by others for a time only";
pub(crate) const WHOLE: &str = "a gang is wholly served, or holds nothing beyond its patience";
pub(crate) const STEADY: &str = "once the trouble is over, no status is written again and again";
pub(crate) const LIVENESS: &str = "once the trouble is over, everything comes to its end";

/// What was written down and asked for in the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    /// Every id that was ever written down: for which object and controller, and by which reconcile.
    recorded: BTreeMap<String, Recorded>,
    asked: BTreeSet<String>,
    /// Resets that were written down and not sent yet.
    resets: BTreeMap<String, Ticket>,
    /// Ids of which their controller has said that it has nothing.
    denied: BTreeSet<String>,
    /// Ids that were given up by force.
    abandoned: BTreeSet<String>,
    /// Ids that the API server did not know of any more once it was restored.
    forgotten: BTreeSet<String>,
    /// Ids of which calls were on their way when the API server was restored.
    overtaken: BTreeSet<String>,
    /// The name that each controller has now, by each that it had.
    renamed: BTreeMap<String, String>,
    /// Into which cluster the API server was brought.
    pub cluster: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Recorded {
    key: Key,
    controller: String,
    /// None once that reconcile is known to be over.
    by: Option<Ticket>,
    /// In which cluster.
    cluster: u64,
}

/// A status that was written: by whom, and what with.
pub(crate) struct StatusWrite<'a> {
    pub ticket: Ticket,
    pub intent: Option<&'a Intent>,
    pub before: &'a IPUPartitionStatus,
    pub after: &'a IPUPartitionStatus,
    pub evidence: &'a Evidence,
}

/// Ends the run unless the rule holds.
pub(crate) fn demand(holds: bool, rule: &str, what: impl FnOnce() -> String) {
    assert!(holds, "broken invariant: {rule}: {}", what());
}

impl Ledger {
    /// A status took the place of another.
    pub(crate) fn status_written(&mut self, written: &StatusWrite<'_>) {
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
        let held = before.attempts.iter().filter(|one| one.is_held());
        for attempt in held.filter(|one| self.is_ours(&one.id)) {
            let mut now = after.attempts.iter().filter(|one| one.id == attempt.id);
            let is_kept = now.next().is_some_and(Attempt::is_held);
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

    fn begun(&mut self, written: &StatusWrite<'_>, attempt: &Attempt) {
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
            by: Some(written.ticket),
            cluster: self.cluster,
        };
        let earlier = self.recorded.insert(attempt.id.clone(), recorded);
        demand(earlier.is_none(), NEVER_TWICE, || {
            format!("{} was written down before: {earlier:?}", attempt.id)
        });
        for other in written.before.attempts.iter().filter(|one| one.is_held()) {
            let evidence = written.evidence;
            let is_left = evidence.unused.contains(&other.id) && evidence.to_go.contains(&other.id);
            demand(
                is_left || evidence.unreachable.contains(&other.id),
                TRUTH_FIRST,
                || format!("{} is begun, and there is {other:?}", attempt.id),
            );
        }
    }

    /// A controller is about to be asked to make a partition.
    pub(crate) fn create_sent(&mut self, attempt: &Attempt, ticket: Ticket) {
        let id = &attempt.id;
        let recorded = self.recorded.get(id);
        let is_recorded = recorded.is_some_and(|one| {
            let named = [&one.controller, &attempt.controller.name].map(|name| self.name_now(name));
            one.key == ticket.key && named[0] == named[1]
        });
        demand(is_recorded, RECORDED_FIRST, || {
            format!("{id}: {recorded:?}")
        });
        demand(self.asked.insert(id.clone()), NEVER_TWICE, || {
            format!("{id} is asked for again")
        });
        demand(
            recorded.is_some_and(|one| one.by == Some(ticket)),
            RECORDED_FIRST,
            || format!("{id} was written down by another reconcile: {recorded:?}"),
        );
    }

    /// A controller is about to be asked to reset a partition.
    pub(crate) fn reset_sent(&mut self, id: &str, ticket: Ticket) {
        let by = self.resets.remove(id);
        demand(by == Some(ticket), RECORDED_FIRST, || {
            format!("the reset of {id} was written down by {by:?}")
        });
    }

    /// A reconcile is over. Whatever acts on what it wrote down is another one, which may bear its number.
    pub(crate) fn ended(&mut self, ticket: Ticket) {
        for one in self.recorded.values_mut() {
            one.by = one.by.filter(|by| *by != ticket);
        }
        self.resets.retain(|_, by| *by != ticket);
    }

    /// A controller has another name from now on.
    pub(super) fn renamed(&mut self, old: &str, now: &str) {
        for name in self.renamed.values_mut().filter(|name| *name == old) {
            now.clone_into(name);
        }
        self.renamed.insert(old.to_owned(), now.to_owned());
    }

    fn name_now<'a>(&'a self, name: &'a str) -> &'a str {
        self.renamed.get(name).map_or(name, String::as_str)
    }

    /// Whether some release has written this id down, before it asked for it.
    pub(crate) fn is_ours(&self, id: &str) -> bool {
        self.recorded.contains_key(id)
    }

    /// Whether the sweep has to find this id: it was written down in the present cluster.
    pub(crate) fn is_of_this_cluster(&self, id: &str) -> bool {
        let recorded = self.recorded.get(id);
        recorded.is_some_and(|one| one.cluster == self.cluster)
    }

    /// The API server knows of no attempts but those of these objects from now on. Nobody can call back
    /// what is on its way, for ids that Pods may use once more.
    pub(super) fn restored<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a IPUPartition>,
        on_their_way: impl Iterator<Item = String>,
    ) {
        let held = sim_adapter::held(objects);
        let lost = self.recorded.keys().filter(|id| !held.contains(*id));
        self.forgotten.extend(lost.cloned());
        self.overtaken.extend(on_their_way);
    }

    /// A call takes effect on a controller.
    pub(crate) fn took_effect(&self, id: &str, verb: Verb, users: &[String]) {
        let harms = matches!(verb, Verb::Remove { .. } | Verb::Reset);
        let harms = harms && !self.overtaken.contains(id);
        demand(!harms || users.is_empty(), NOT_IN_USE, || {
            format!("{verb:?} of {id}, which {users:?} use")
        });
        demand(self.is_ours(id), OURS_ONLY, || format!("{verb:?} of {id}"));
    }

    /// The controller that an id was written down for.
    pub(crate) fn controller_of(&self, id: &str) -> Option<&str> {
        let recorded = self.recorded.get(id)?;
        Some(&recorded.controller)
    }

    /// A controller has said that it has nothing of this id.
    pub(crate) fn denied(&mut self, id: &str) {
        self.denied.insert(id.to_owned());
    }

    pub(crate) fn was_denied(&self, id: &str) -> bool {
        self.denied.contains(id)
    }

    pub(crate) fn was_abandoned(&self, id: &str) -> bool {
        self.abandoned.contains(id)
    }

    /// An object's finalizer has gone. `is_there` tells whether an id is on some controller now.
    pub(crate) fn released(
        &mut self,
        key: Key,
        object: &IPUPartition,
        is_forced: bool,
        is_there: impl Fn(&str) -> bool,
    ) {
        let status = object.status.clone().unwrap_or_default();
        let of_it = self.recorded.iter().filter(|(_, one)| one.key == key);
        for (id, _) in of_it.filter(|(id, _)| is_there(id)) {
            // A late call made it after the controller had denied it, or nobody knows of it any more: the
            // sweep's work.
            let is_lost = self.denied.contains(id) || self.forgotten.contains(id);
            let is_excused = is_forced || is_lost;
            demand(
                is_excused || self.abandoned.contains(id),
                NOTHING_LEFT,
                || format!("{id} is there, and {status:?} goes"),
            );
        }
        if is_forced {
            let held = status.attempts.into_iter().filter(Attempt::is_held);
            self.abandoned.extend(held.map(|attempt| attempt.id));
        }
    }
}

fn partition_changed(written: &StatusWrite<'_>) {
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
