//! Evaluates a partition: its placement within the capacity after earlier requests, and its eviction.

use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_guest_host::model::{Decision, Placed};
use ipu_policies::namespace_usage::counter::Reservation;
use ipu_runtime::clock;
use ipu_runtime::events;
use kube::ResourceExt;

use super::context::Context;
use super::eviction::{self, EvictionState, RequiredData, Sibling};
use super::observations::Answer;
use super::placement_request::request::{self, shortened};
use super::placement_request::{self, Placement, QueueView, Request};

/// Times that the policy is asked, if others get IPUs during each decision.
const ROUNDS: usize = 8;

/// Chooses a controller for this partition.
pub(super) async fn placement(context: &Context, partition: &IPUPartition) -> Answer {
    let uid = partition.uid().unwrap_or_default();
    // A partition without a controller has no reservation.
    context.namespaces.release(&uid);
    let answer = decide(context, partition).await;
    match &answer {
        Answer::Try(controller, _) => {
            let ipus = partition.spec.ipus;
            context.queue_state.reserve(&uid, &controller.name, ipus);
        }
        Answer::Wait(_) | Answer::Later(_) | Answer::Reject(_) => {
            context.namespaces.release(&uid);
        }
    }
    // Later requests wait until the policy has decided.
    context.queue_state.mark_evaluated(&uid);
    answer
}

async fn decide(context: &Context, partition: &IPUPartition) -> Answer {
    let now = clock::now();
    let found = context.pool.candidates().await;
    let held = held(context, partition);
    let entries = context.queue_state.entries(&context.watched, now);
    let queue = QueueView {
        entries: &entries,
        reservations: &context
            .queue_state
            .reserved_by_others(&partition.uid().unwrap_or_default()),
        held,
        backfill_limit: context.settings.backfill_limit,
    };
    let request = match placement_request::prepare(partition, found, queue, now) {
        Placement::Decided(answer) => return answer,
        Placement::Ask(request) => request,
    };
    let Some(placed) = ask(context, partition, &request, held).await else {
        return placement_request::outpaced();
    };
    if let Some(why) = &placed.overruled {
        report_overruled(context, partition, why);
    }
    let by = request::decided_by(&placed);
    request.conclude(placed.decision, by, &context.pool.controllers())
}

/// Asks the placement policy. Its *try* counts only if no other partition got IPUs meanwhile: otherwise a quota was checked
/// against an outdated usage. `None`: this has happened each time.
async fn ask(
    context: &Context,
    partition: &IPUPartition,
    asked: &Request,
    held: u32,
) -> Option<Placed> {
    let uid = partition.uid().unwrap_or_default();
    let namespace = &partition.spec.owner.namespace;
    let namespaces = &context.namespaces;
    for _ in 0..ROUNDS {
        let version = namespaces.version();
        let known = (
            namespaces.context(namespace, &uid),
            namespaces.others(namespace),
        );
        let request =
            request::partition_request(partition, known, asked.waiting.clone(), held, clock::now());
        let guests = &context.guests;
        let placed = guests.place(&request, asked.views(), &asked.tried).await;
        let is_given = matches!(placed.decision, Decision::Try(_));
        if !is_given || namespaces.reserve(Reservation::of(partition), version) {
            return Some(placed);
        }
    }
    None
}

/// Evaluates the eviction of this partition, and reads no more data than it needs.
pub(super) async fn eviction(context: &Context, partition: &IPUPartition) -> EvictionState {
    let cordons = context.pool.cordons();
    let name = match eviction::required_data(partition, &cordons) {
        RequiredData::Nothing => return EvictionState::default(),
        RequiredData::Siblings => {
            return eviction::of_owner(partition, &siblings(context, partition));
        }
        RequiredData::Everything(name) => name,
    };
    let (now, watched) = (clock::now(), &context.watched);
    let owner = Uid::of(&partition.spec.owner.uid);
    let siblings = watched.read(|cache| cache.some(|one| one.is_of(owner)));
    let open = context.pool.candidates().await.open;
    // The queue is read again: a partition that has just left the controller waits in it, and needs the capacity that it
    // left for.
    let (asked, mut entries) = watched.read(|cache| {
        let asked = cache.briefs().flat_map(|(one, _)| &one.requested);
        let asked: Vec<_> = asked.cloned().collect();
        (asked, cache.queue(now))
    });
    context.queue_state.update(&mut entries);
    let limit = context.settings.backfill_limit;
    let asked = asked.iter().map(|one| (&*one.controller, one.ipus));
    let open = eviction::capacity_after_queue(partition, &entries, asked, open, limit, now);
    // Cached data are enough: a partition that has left since then still leaves first.
    let there = context.queue_state.on_drained(watched, name);
    let is_other = |one: &&IPUPartition| siblings.iter().all(|other| other.uid() != one.uid());
    let others = siblings.iter().chain(there.iter().filter(is_other));
    eviction::of(partition, others, &cordons, &open, now)
}

/// Partitions that its owner has or is getting; 0 without a gang.
fn held(context: &Context, partition: &IPUPartition) -> u32 {
    if partition.spec.options.gang_size.is_none() {
        return 0;
    }
    eviction::of_owner(partition, &siblings(context, partition)).held
}

/// All readable partitions of its owner, with this one.
fn siblings(context: &Context, partition: &IPUPartition) -> Vec<Sibling> {
    let owner = Uid::of(&partition.spec.owner.uid);
    context.watched.read(|cache| {
        let all = cache.briefs().map(|(one, _)| one);
        let siblings = all.filter(|one| one.is_of(owner));
        siblings.map(|one| one.sibling).collect()
    })
}

fn report_overruled(context: &Context, partition: &IPUPartition, why: &str) {
    tracing::warn!(partition = %partition.name_any(), why, "the placement policy was overruled");
    let uid = partition.uid().unwrap_or_default();
    if context.is_news(&uid, why) {
        let reason = "PolicyOverruled";
        let event = events::warning(reason, reason, shortened(why));
        context.publish(partition, event);
    }
}
