//! Invariants, which hold after each step whatever faults occur. A violation ends the run and names
//! the rule.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase,
};
use ipu_ledger::observations::Intent;

use super::api_server::Key;
use super::controllers::Verb;
use super::event_queue::Ticket;
use super::evidence::Evidence;
use super::sim_adapter;

/// The rules. A violation names its rule.
pub(crate) const RECORDED_FIRST: &str = "an id is recorded before a request with it is sent";
pub(crate) const NEVER_TWICE: &str = "no id is used twice";
pub(crate) const STATE_KNOWN_FIRST: &str = "an attempt begins only when the earlier ones are absent, unreachable, or unused with their removal requested";
pub(crate) const NOT_FORGOTTEN: &str =
    "an attempt is not dropped before its controller has reported it as absent";
pub(crate) const ONE_PARTITION: &str =
    "the partition of a slot is never replaced by another one in one step";
pub(crate) const NOT_OFFERED_AGAIN: &str = "a released partition is never offered again";
pub(crate) const SEEN_ACTIVE: &str = "only a partition that was seen active is offered";
pub(crate) const ONE_USABLE: &str = "a slot never has two usable partitions";
pub(crate) const NOT_IN_USE: &str = "no partition is removed or reset while a live Pod uses it";
pub(crate) const NOTHING_LEFT: &str =
    "an object is deleted only when none of its partitions is left on a controller";
pub(crate) const NOT_ASSIGNED_TWICE: &str =
    "IPUs that a live Pod uses are not assigned to another owner";
pub(crate) const NOT_RELEASED_EARLY: &str =
    "a partition is released only once it was missing on its controller for the grace period";
pub(crate) const OURS_ONLY: &str = "partitions of other clients are never changed";
pub(crate) const OWNERLESS_ONLY: &str = "only orphans are swept";
pub(crate) const BOUNDED: &str = "backfill delays the earliest request for a limited time only";
pub(crate) const NOT_REJECTED_EARLY: &str =
    "a request is not rejected for a shortage of IPUs that ends";
pub(crate) const SHARED: &str =
    "requests that one controller each suits leave the other controllers to others";
pub(crate) const COUNTED_ONCE: &str = "IPUs of a controller with two names count once";
pub(crate) const ADVERTISED: &str =
    "each node advertises the IPUs of all releases, and no release undoes what another one writes";
pub(crate) const GANG_COMPLETE: &str =
    "a gang is served completely, or releases its partitions in time";
pub(crate) const STEADY: &str = "after the last fault, no status is written without end";
pub(crate) const LIVENESS: &str = "after the last fault, everything is settled";

/// Ids that were recorded and requested in the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RunHistory {
    /// Every recorded id: for which object and controller, and by which reconcile.
    recorded: BTreeMap<String, Recorded>,
    asked: BTreeSet<String>,
    /// Resets that were recorded and not sent yet.
    resets: BTreeMap<String, Ticket>,
    /// Ids that their controller has reported as absent.
    denied: BTreeSet<String>,
    /// Ids that were force-released.
    abandoned: BTreeSet<String>,
    /// Ids that the restored API server did not have any more.
    forgotten: BTreeSet<String>,
    /// Ids with calls in flight when the API server was restored.
    in_flight_at_restore: BTreeSet<String>,
    /// The present name of each controller, by each earlier name.
    renamed: BTreeMap<String, String>,
    /// The cluster to which the API server was moved.
    pub cluster: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Recorded {
    key: Key,
    controller: String,
    /// None once that reconcile has ended.
    by: Option<Ticket>,
    /// The cluster in which it was recorded.
    cluster: u64,
}

/// A status that was written, its writer and its reason.
pub(crate) struct StatusWrite<'a> {
    pub ticket: Ticket,
    pub intent: Option<&'a Intent>,
    pub before: &'a IPUPartitionStatus,
    pub after: &'a IPUPartitionStatus,
    pub evidence: &'a Evidence,
}

/// The removal of a finalizer, and its reason.
pub(crate) struct Release<'a> {
    pub object: &'a IPUPartition,
    /// The attempts that forced release abandons.
    pub abandoned: &'a [Attempt],
    pub is_forced: bool,
    pub evidence: &'a Evidence,
}

/// Ends the run unless the condition of this rule holds.
pub(crate) fn demand(holds: bool, rule: &str, what: impl FnOnce() -> String) {
    assert!(holds, "broken invariant: {rule}: {}", what());
}

impl RunHistory {
    /// Checks a status that replaces another one.
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
            format!("{} was recorded before: {earlier:?}", attempt.id)
        });
        for other in written.before.attempts.iter().filter(|one| one.is_held()) {
            let evidence = written.evidence;
            let is_left = evidence.unused.contains(&other.id) && evidence.to_go.contains(&other.id);
            demand(
                is_left || evidence.unreachable.contains(&other.id),
                STATE_KNOWN_FIRST,
                || format!("{} is begun, and there is {other:?}", attempt.id),
            );
        }
    }

    /// Checks a creation before its request is sent.
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

    /// Checks a reset before its request is sent.
    pub(crate) fn reset_sent(&mut self, id: &str, ticket: Ticket) {
        let by = self.resets.remove(id);
        demand(by == Some(ticket), RECORDED_FIRST, || {
            format!("the reset of {id} was written down by {by:?}")
        });
    }

    /// A reconcile has ended. A later one may have its number, and is a different one.
    pub(crate) fn ended(&mut self, ticket: Ticket) {
        for one in self.recorded.values_mut() {
            one.by = one.by.filter(|by| *by != ticket);
        }
        self.resets.retain(|_, by| *by != ticket);
    }

    /// A controller has a new name.
    pub(super) fn renamed(&mut self, old: &str, now: &str) {
        for name in self.renamed.values_mut().filter(|name| *name == old) {
            now.clone_into(name);
        }
        self.renamed.insert(old.to_owned(), now.to_owned());
    }

    fn name_now<'a>(&'a self, name: &'a str) -> &'a str {
        self.renamed.get(name).map_or(name, String::as_str)
    }

    /// Whether a release recorded this id before its request.
    pub(crate) fn is_ours(&self, id: &str) -> bool {
        self.recorded.contains_key(id)
    }

    /// Whether the sweep must find this id: it was recorded in the present cluster.
    pub(crate) fn is_of_this_cluster(&self, id: &str) -> bool {
        let recorded = self.recorded.get(id);
        recorded.is_some_and(|one| one.cluster == self.cluster)
    }

    /// The API server has only the attempts of these objects from now on. Calls in flight cannot be
    /// cancelled: their ids may be used by Pods again.
    pub(super) fn restored<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a IPUPartition>,
        on_their_way: impl Iterator<Item = String>,
    ) {
        let held = sim_adapter::held(objects);
        let lost = self.recorded.keys().filter(|id| !held.contains(*id));
        self.forgotten.extend(lost.cloned());
        self.in_flight_at_restore.extend(on_their_way);
    }

    /// A call takes effect on a controller.
    pub(crate) fn took_effect(&self, id: &str, verb: Verb, users: &[String]) {
        let harms = matches!(verb, Verb::Remove { .. } | Verb::Reset);
        let harms = harms && !self.in_flight_at_restore.contains(id);
        demand(!harms || users.is_empty(), NOT_IN_USE, || {
            format!("{verb:?} of {id}, which {users:?} use")
        });
        demand(self.is_ours(id), OURS_ONLY, || format!("{verb:?} of {id}"));
    }

    /// The controller for which an id was recorded.
    pub(crate) fn controller_of(&self, id: &str) -> Option<&str> {
        let recorded = self.recorded.get(id)?;
        Some(&recorded.controller)
    }

    /// A controller has reported this id as absent.
    pub(crate) fn denied(&mut self, id: &str) {
        self.denied.insert(id.to_owned());
    }

    pub(crate) fn was_denied(&self, id: &str) -> bool {
        self.denied.contains(id)
    }

    pub(crate) fn was_abandoned(&self, id: &str) -> bool {
        self.abandoned.contains(id)
    }

    /// The finalizer of an object was removed. `is_there`: whether an id is on some controller now.
    pub(crate) fn released(
        &mut self,
        key: Key,
        release: &Release<'_>,
        is_there: impl Fn(&str) -> bool,
    ) {
        let status = release.object.status.clone().unwrap_or_default();
        let is_abandoned = |id: &str| release.abandoned.iter().any(|attempt| attempt.id == id);
        for attempt in status.attempts.iter().filter(|attempt| attempt.is_held()) {
            let id = &attempt.id;
            let is_gone = release.evidence.absent.contains(id) || !self.is_ours(id);
            demand(is_gone || is_abandoned(id), NOT_FORGOTTEN, || {
                format!("{attempt:?} goes with its object")
            });
        }
        let of_it = self.recorded.iter().filter(|(_, one)| one.key == key);
        for (id, _) in of_it.filter(|(id, _)| is_there(id)) {
            // A late call created it after the controller had reported it as absent, or no object
            // has the id any more: the sweep removes it.
            let is_lost = self.denied.contains(id) || self.forgotten.contains(id);
            let is_excused = release.is_forced || is_lost;
            demand(
                is_excused || self.abandoned.contains(id),
                NOTHING_LEFT,
                || format!("{id} is there, and {status:?} goes"),
            );
        }
        let abandoned = release.abandoned.iter();
        self.abandoned
            .extend(abandoned.map(|attempt| attempt.id.clone()));
    }
}

fn partition_changed(written: &StatusWrite<'_>) {
    let (before, after) = (written.before, written.after);
    match (&before.partition_id, &after.partition_id) {
        (Some(old), Some(new)) => demand(old == new, ONE_PARTITION, || {
            format!("{new} replaces {old}")
        }),
        (None, Some(new)) => {
            let mut earlier = before.attempts.iter().filter(|one| one.id == *new);
            let outcome = earlier.next().map(|one| one.outcome);
            demand(
                outcome == Some(AttemptOutcome::Unknown),
                NOT_OFFERED_AGAIN,
                || format!("{new} is taken, and its outcome was {outcome:?}"),
            );
        }
        (Some(_) | None, None) => {}
    }
    let becomes_ready = after.phase == PartitionPhase::Ready && before.phase != after.phase;
    let id = after.partition_id.as_deref().unwrap_or_default();
    // A reset that is deferred until a Pod ends does not change the partition.
    let is_put_off =
        before.phase == PartitionPhase::Resetting && written.evidence.in_use.contains(id);
    if becomes_ready && !is_put_off {
        demand(written.evidence.active.contains(id), SEEN_ACTIVE, || {
            format!("{id:?} becomes Ready")
        });
    }
}
