//! The adapter by which the simulation, the model check and the property tests call the core.

use std::collections::BTreeSet;
use std::time::Duration;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::{ControllerRef, DecidedBy, IPUPartition, IPUPartitionStatus};
use ipu_api::ipupolicy::BUILT_IN;
use ipu_api::naming::{self, Identity};
use ipu_api::vipu_controller::CordonStates;
use ipu_ledger::observations::{Answer, RemoteState};
use ipu_ledger::requeue;
use ipu_ledger::step::{Requeue, Settings};
use ipu_ledger::sweep::Course;
use ipu_ledger::sweep::orphans::{self, Orphans, RemotePartition, Suspects};
use ipu_placement::allocations::{self, Allocations};
use ipu_placement::cycle::{self, Pass};
use ipu_placement::decision::PlacementDecision;
use ipu_placement::drain::{self, EvictionState, RequiredData, Sibling};
use ipu_placement::guest_call::{self, Candidates, Placement, QueueView, values};
use ipu_placement::queue::{self, QueueEntry};
use jiff::Timestamp;
use vipu_client::model::{Inventory, PartitionState};

use ipu_partitions::reconcile::health;

/// Marks the ids that the release in this namespace of a cluster gives.
pub(super) fn identity(cluster: u64, namespace: &str) -> Identity {
    Identity::new(&format!("cluster-{cluster}"), namespace)
}

/// A decision, with the account of the operator and a random number.
pub(super) fn answer(decision: PlacementDecision, account: Option<String>, nonce: u64) -> Answer {
    Answer {
        decision,
        account,
        nonce,
    }
}

/// Time for which the sweep leaves a partition without an owner alone.
pub(super) const GRACE: Duration = Duration::from_secs(30);

pub(super) fn settings() -> Settings {
    Settings {
        identity: identity(0, "release"),
        forming: Duration::from_mins(5),
        grace: Duration::from_secs(30),
        gang_patience: Duration::from_mins(2),
        backfill_limit: Duration::from_mins(10),
    }
}

/// The eviction of an object, among all objects and the current controllers.
pub(super) fn evaluate_eviction<'a>(
    object: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition> + Clone,
    views: Vec<ControllerView>,
    cordons: &CordonStates,
    backfill_limit: Duration,
    now: Timestamp,
) -> EvictionState {
    match drain::required_data(object, cordons) {
        RequiredData::Nothing => EvictionState::default(),
        RequiredData::Siblings => of_owner(object, others),
        RequiredData::Everything(_) => {
            let open = Candidates::of(views, cordons.clone()).open;
            let entries = queue(others.clone(), now);
            let asked = others.clone().flat_map(drain::open_requests);
            let limit = backfill_limit;
            let open = drain::capacity_after_queue(object, &entries, asked, open, limit, now);
            drain::of(object, others, cordons, &open, now)
        }
    }
}

/// The queue, in order.
pub(super) fn queue<'a>(
    objects: impl Iterator<Item = &'a IPUPartition> + Clone,
    now: Timestamp,
) -> Vec<QueueEntry> {
    queue::entries(objects, now)
}

/// The entry of a partition in this queue.
pub(super) fn own_entry(
    object: &IPUPartition,
    entries: &[QueueEntry],
    now: Timestamp,
) -> QueueEntry {
    queue::own_entry(object, entries, now)
}

/// The observation of a state that a controller reports.
pub(super) fn remote_state(state: Option<&PartitionState>) -> RemoteState {
    state.map_or(RemoteState::Absent, |state| {
        RemoteState::Present(health::health(state))
    })
}

/// The observation of a state that a controller shows this account.
pub(super) fn shown_to(account: String, state: RemoteState) -> RemoteState {
    match state {
        RemoteState::Present(mut health) => {
            health.account = Some(account);
            RemoteState::Present(health)
        }
        state => state,
    }
}

/// The observation of a controller that does not answer.
pub(super) fn without_answer(reason: &str, is_denied: bool, is_listed: bool) -> RemoteState {
    health::without_answer(reason, is_denied, is_listed)
}

/// The decision of the queue and of the built-in placement policy.
pub(super) fn place(
    object: &IPUPartition,
    found: Candidates,
    queue: QueueView<'_>,
    controllers: &[ControllerRef],
    now: Timestamp,
) -> PlacementDecision {
    let held = queue.held;
    let placement = guest_call::prepare(object, found, queue, now);
    decide(object, (placement, held), controllers, now)
}

/// The decision of a pass, and of the built-in placement policy. `held` counts the partitions that
/// the owner has or is getting.
pub(super) fn place_in(
    pass: &mut Pass,
    object: &IPUPartition,
    held: u32,
    controllers: &[ControllerRef],
    now: Timestamp,
) -> PlacementDecision {
    let placement = pass.prepare(object, held, now);
    let answer = decide(object, (placement, held), controllers, now);
    pass.note(object, &answer);
    answer
}

fn decide(
    object: &IPUPartition,
    (placement, held): (Placement, u32),
    controllers: &[ControllerRef],
    now: Timestamp,
) -> PlacementDecision {
    let asked = match placement {
        Placement::Decided(answer) => return answer,
        Placement::Ask(asked) => asked,
    };
    let waiting = asked.waiting.clone();
    let request = values::partition_request(object, Default::default(), waiting, held, now);
    let decision = ipu_placement::serial_walk::serial_walk(&request, asked.views(), &asked.tried);
    let by = DecidedBy {
        policy: BUILT_IN.to_owned(),
        digest: None,
    };
    asked.conclude(decision, by, controllers)
}

/// Partitions that the owner of `object` has or is getting.
pub(super) fn held_by_owner<'a>(
    object: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition>,
) -> u32 {
    of_owner(object, others).held
}

/// The same, with those in `slots` that have a controller.
pub(super) fn held_with<'a>(
    object: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition>,
    slots: &BTreeSet<u32>,
) -> u32 {
    let siblings = drain::siblings(object, others).map(Sibling::of);
    cycle::held(object, siblings.collect(), slots)
}

fn of_owner<'a>(
    object: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition>,
) -> EvictionState {
    let siblings: Vec<_> = drain::siblings(object, others).map(Sibling::of).collect();
    drain::of_owner(object, &siblings)
}

/// Requeue delay in milliseconds. `None`: wait for a change.
pub(super) fn pause(requeue: Requeue, idle_rounds: u32) -> Option<u64> {
    let pause = requeue::delay(requeue, idle_rounds)?;
    Some(pause.as_millis().try_into().expect("a pause is short"))
}

/// The orphans and suspects of a sweep.
pub(super) fn find_orphans(
    found: &[RemotePartition],
    held: &BTreeSet<String>,
    suspects: &Suspects,
    identity: &Identity,
    now: Duration,
) -> Orphans {
    let found = found.iter().map(|(name, id)| (name.as_str(), id.as_str()));
    orphans::find_orphans(
        found,
        |id| held.contains(id),
        suspects,
        identity,
        GRACE,
        now,
    )
}

/// The tasks of a sweep for `ownerless` objects and the orphans that are `due`.
pub(super) fn course<O, E>(
    ownerless: Result<Vec<O>, E>,
    due: Vec<RemotePartition>,
) -> Course<O, E> {
    Course::new([ownerless], due)
}

/// Removes the partitions that this object lists from the suspects.
pub(super) fn clear_owned(suspects: &mut Suspects, object: &IPUPartition) {
    orphans::clear_owned(suspects, object);
}

/// Names of controllers that left the list and are still swept.
pub(super) fn left_behind<'a>(
    holding: impl IntoIterator<Item = &'a str>,
    is_listed: impl Fn(&str) -> bool,
) -> BTreeSet<&'a str> {
    orphans::left_behind(holding, |name| is_listed(name))
}

/// Every id that these objects list as held.
pub(super) fn held<'a>(objects: impl IntoIterator<Item = &'a IPUPartition>) -> BTreeSet<String> {
    orphans::held(objects)
}

/// Whether the operator can have generated this id for this object, or adopted it.
pub(super) fn is_of(id: &str, object: &IPUPartition) -> bool {
    let spec = &object.spec;
    naming::is_of_owner(id, &spec.owner)
        || id == naming::adoptable_partition(&spec.owner, spec.slot)
}

/// Whether a status releases IPUs that the one before holds.
pub(super) fn releases(before: &IPUPartitionStatus, after: &IPUPartitionStatus) -> bool {
    allocations::releases(before, after)
}

/// The allocations of these objects.
pub(super) fn allocations<'a>(objects: impl Iterator<Item = &'a IPUPartition>) -> Allocations {
    let mut all = Allocations::default();
    for object in objects {
        let name = object.metadata.name.as_deref().unwrap_or_default().into();
        all.replace(
            &name,
            &[],
            &allocations::allocations(object, |word| word.into()),
        );
    }
    all
}

/// A controller as placement sees it, with this inventory, which was read as `account`, and these
/// allocations.
pub(super) fn withheld(
    (inventory, mut view): (Inventory, ControllerView),
    held: &Allocations,
    account: Option<&str>,
) -> ControllerView {
    let unlisted = held.unlisted(&view.name, |id| inventory.accounts_for(id), account);
    allocations::withhold(&mut view, &unlisted);
    view
}
