//! Asks where a partition fits, in the room that those before it leave, and what surrounds it.

use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_guest_host::model::{Decision, Placed};
use ipu_policies::namespace_usage::counter::Reservation;
use ipu_runtime::clock;
use ipu_runtime::events;
use kube::ResourceExt;

use super::cache::Cache;
use super::context::Context;
use super::eviction::{self, EvictionState, RequiredData};
use super::execute::publish;
use super::observations::Answer;
use super::placement::{self, Placement, QueueView, Request};
use super::placing::{self, shortened};

/// How often in a row the policy is asked, where others are given IPUs in between each time.
const ROUNDS: usize = 8;

/// Asks the placement policy where to make this partition.
pub(super) async fn place(context: &Context, partition: &IPUPartition) -> Answer {
    let uid = partition.uid().unwrap_or_default();
    // Whoever looks for a place has none, whatever it was promised before.
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
    // Only now: as long as the policy thinks, the younger let it go first.
    context.queue_state.mark_evaluated(&uid);
    answer
}

async fn decide(context: &Context, partition: &IPUPartition) -> Answer {
    let now = clock::now();
    let found = context.fleet.divided().await;
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
    let request = match placement::prepare(partition, found, queue, now) {
        Placement::Decided(answer) => return answer,
        Placement::Ask(request) => request,
    };
    let Some(placed) = ask(context, partition, &request, held).await else {
        return placement::outpaced();
    };
    if let Some(why) = &placed.overruled {
        tell_overruled(context, partition, why);
    }
    let by = placing::decided_by(&placed);
    request.conclude(placed.decision, by, &context.fleet.controllers())
}

/// Asks the placement policy. Its "try" counts only if nobody else was given IPUs meanwhile: a
/// quota is held by what the policy was told, which is no longer true then. None where that
/// happened time and again.
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
        let request = placing::request(partition, known, held, clock::now());
        let guests = &context.guests;
        let placed = guests.place(&request, asked.views(), &asked.tried).await;
        let is_given = matches!(placed.decision, Decision::Try(_));
        if !is_given || namespaces.reserve(Reservation::of(partition), version) {
            return Some(placed);
        }
    }
    None
}

/// What surrounds this partition: of all that could matter, no more is read than does.
pub(super) async fn evaluate_eviction(
    context: &Context,
    partition: &IPUPartition,
) -> EvictionState {
    let cordons = context.fleet.cordons();
    let name = match eviction::required_data(partition, &cordons) {
        RequiredData::Nothing => return EvictionState::default(),
        RequiredData::Siblings => {
            let siblings = siblings(context, partition);
            return eviction::of(partition, siblings.iter(), &cordons, &[], clock::now());
        }
        RequiredData::Everything(name) => name,
    };
    let (now, watched) = (clock::now(), &context.watched);
    let siblings = siblings(context, partition);
    let open = context.fleet.divided().await.open;
    // The line is read anew: whoever has just left the controller waits, and is to find the room that it
    // left for.
    let (asked, entries) = watched.read(|cache| {
        let asked = cache.some(|one| one.has_open_request);
        (asked, cache.queue(now))
    });
    let open = eviction::capacity_after_queue(&entries, asked.iter(), open);
    // What was read a moment ago is enough: who has left since then still goes first.
    let there = context.queue_state.on_drained(watched, name);
    let is_other = |one: &&IPUPartition| siblings.iter().all(|other| other.uid() != one.uid());
    let others = siblings.iter().chain(there.iter().filter(is_other));
    eviction::of(partition, others, &cordons, &open, now)
}

/// How many partitions of its owner are there or being made, where it is of use only with others.
fn held(context: &Context, partition: &IPUPartition) -> u32 {
    if partition.spec.options.gang_size.is_none() {
        return 0;
    }
    eviction::held(partition, siblings(context, partition).iter())
}

/// All partitions of its owner that can be read; it is one of them.
fn siblings(context: &Context, partition: &IPUPartition) -> Vec<IPUPartition> {
    let owner = Uid::of(&partition.spec.owner.uid);
    let are_its = |cache: &mut Cache| cache.some(|one| one.is_of(owner));
    context.watched.read(are_its)
}

fn tell_overruled(context: &Context, partition: &IPUPartition, why: &str) {
    tracing::warn!(partition = %partition.name_any(), why, "the placement policy was overruled");
    let uid = partition.uid().unwrap_or_default();
    if context.is_news(&uid, why) {
        let reason = "PolicyOverruled";
        let event = events::warning(reason, reason, shortened(why));
        publish(context, partition, event);
    }
}
