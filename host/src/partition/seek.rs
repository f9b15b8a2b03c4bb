//! Asks where a partition fits, in the room that those before it leave, and what surrounds it.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::cache::Cache;
use super::context::Context;
use super::events::Note;
use super::execute::publish;
use super::fleet::Divided;
use super::inheritance;
use super::knowledge::Answer;
use super::line::{self, Room};
use super::placing::{self, shortened};
use super::surroundings::{self, Surroundings};
use super::usage::Promise;
use crate::api::ipupartition::{IPUPartition, WaitingReason};
use crate::clock;
use crate::uid::Uid;
use crate::wasm::model::{ControllerView, Decision, PlaceAttempt, Placed};

/// What stands in the place of a controller's name where the reason is the same for all.
const EVERY: &str = "every controller";

/// How often in a row the policy is asked, where others are given IPUs in between each time.
const ROUNDS: usize = 8;

/// Why a partition waits that was overtaken each time.
const OVERTAKEN: &str = "others were given IPUs while it was decided; asked again within seconds";

/// Asks the placement policy where to make this partition.
pub(super) async fn place(context: &Context, partition: &IPUPartition) -> Answer {
    if let Some(answer) = inherited(context, partition).await {
        return answer;
    }
    let now = clock::now();
    let status = partition.status.clone().unwrap_or_default();
    let found = context.fleet.divided().await;
    let held = held(context, partition);
    let room = room(context, partition, found.open.clone(), held, now);
    let uid = partition.uid().unwrap_or_default();
    // Whoever looks for a place has none, whatever it was promised before.
    context.namespaces.withdraw(&uid);
    let all = found.open.iter().chain(&found.shut);
    if let Some(why) = line::never_fits(&line::waiter(partition, now), all) {
        return Answer::Reject(shortened(&why));
    }
    if let Some(why) = &room.too_small {
        context.turns.was_asked(&uid);
        return later(
            &room,
            vec![WaitingReason {
                controller: EVERY.to_owned(),
                reason: why.clone(),
            }],
        );
    }
    let tried = placing::tried(&status);
    let Some(placed) = ask(context, partition, &room.views, &tried, held).await else {
        context.turns.was_asked(&uid);
        return Answer::Later(vec![WaitingReason {
            controller: EVERY.to_owned(),
            reason: OVERTAKEN.to_owned(),
        }]);
    };
    if let Some(why) = &placed.overruled {
        tell_overruled(context, partition, why).await;
    }
    let controllers = context.fleet.controllers();
    let by = placing::decided_by(&placed);
    let answer = placing::answer(placed.decision, by, &controllers);
    match &answer {
        Answer::Try(controller, _) => {
            let ipus = partition.spec.ipus;
            context.turns.takes(&uid, &controller.name, ipus);
        }
        Answer::TakeOver(..) | Answer::Wait(_) | Answer::Later(_) | Answer::Reject(_) => {
            context.namespaces.withdraw(&uid);
        }
    }
    // Only now: as long as the policy thinks, the younger let it go first.
    context.turns.was_asked(&uid);
    with_all_reasons(answer, &room, &found, partition.spec.ipus)
}

/// The answer with what the policy was not told: for whom room is kept, and which controllers are
/// closed. What only a closed one could serve is not impossible.
fn with_all_reasons(answer: Answer, room: &Room, found: &Divided, ipus: u32) -> Answer {
    match answer {
        Answer::Wait(reasons) => {
            let mut reasons = line::explained(reasons, room);
            reasons.extend(found.shut_out());
            later(room, reasons)
        }
        Answer::Reject(_) if found.shut.iter().any(|view| view.total_ipus >= ipus) => {
            Answer::Wait(found.shut_out().collect())
        }
        answer => answer,
    }
}

/// What Graphcore's operator made for this partition, and what is still there: it is had already, so that
/// nobody is asked and nobody is passed by.
async fn inherited(context: &Context, partition: &IPUPartition) -> Option<Answer> {
    let id = context.inheritance()?.id_for(partition)?;
    let looks = context.fleet.looks().await;
    let called = Uid::of(&id);
    let others = |cache: &mut Cache| cache.some(|one| one.would_inherit(called));
    let others = context.watched.read(others);
    let name = inheritance::holder(partition, &id, others.iter(), &looks)?;
    let mut controllers = context.fleet.controllers().into_iter();
    let controller = controllers.find(|controller| controller.name == name)?;
    context
        .turns
        .was_asked(&partition.uid().unwrap_or_default());
    Some(Answer::TakeOver(controller, id))
}

/// Asks the placement policy. Its "try" counts only if nobody else was given IPUs meanwhile: a
/// quota is held by what the policy was told, which is no longer true then. None where that
/// happened time and again.
async fn ask(
    context: &Context,
    partition: &IPUPartition,
    views: &[ControllerView],
    tried: &[PlaceAttempt],
    held: u32,
) -> Option<Placed> {
    let uid = partition.uid().unwrap_or_default();
    let namespace = &partition.spec.owner.namespace;
    let namespaces = &context.namespaces;
    for _ in 0..ROUNDS {
        let stamp = namespaces.stamp();
        let known = (
            namespaces.facts(namespace, &uid),
            namespaces.others(namespace),
        );
        let request = placing::request(partition, known, held, clock::now());
        let placed = context.guests.place(&request, views, tried).await;
        let is_given = matches!(placed.decision, Decision::Try(_));
        if !is_given || namespaces.promise(Promise::to(partition), stamp) {
            return Some(placed);
        }
    }
    None
}

/// What surrounds this partition. Where its controller stays and it is of use by itself, nothing of
/// that matters.
pub(super) async fn look_around(context: &Context, partition: &IPUPartition) -> Surroundings {
    let closed = context.fleet.closed();
    let drained = surroundings::drained(partition, &closed);
    if drained.is_none() && partition.spec.options.gang_size.is_none() {
        return Surroundings::default();
    }
    let (now, watched) = (clock::now(), &context.watched);
    let siblings = siblings(context, partition);
    let Some(name) = drained else {
        return surroundings::of(partition, siblings.iter(), &closed, &[], now);
    };
    let open = context.fleet.divided().await.open;
    // The line is read anew: whoever has just left the controller waits, and is to find the room that it
    // left for.
    let (asked, line) = watched.read(|cache| {
        let asked = cache.some(|one| one.is_being_asked_for);
        (asked, cache.line(now))
    });
    let asked = asked.iter().flat_map(surroundings::asked_for);
    let open = line::spared(&line, asked, open);
    // What was read a moment ago is enough: who has left since then still goes first.
    let there = context.turns.on_drained(watched, name);
    let is_other = |one: &&IPUPartition| siblings.iter().all(|other| other.uid() != one.uid());
    let others = siblings.iter().chain(there.iter().filter(is_other));
    surroundings::of(partition, others, &closed, &open, now)
}

/// How many partitions of its owner are there or being made, where it is of use only with others.
fn held(context: &Context, partition: &IPUPartition) -> u32 {
    if partition.spec.options.gang_size.is_none() {
        return 0;
    }
    surroundings::held(partition, siblings(context, partition).iter())
}

/// All partitions of its owner that can be read; it is one of them.
fn siblings(context: &Context, partition: &IPUPartition) -> Vec<IPUPartition> {
    let owner = Uid::of(&partition.spec.owner.uid);
    let are_its = |cache: &mut Cache| cache.some(|one| one.is_of(owner));
    context.watched.read(are_its)
}

/// The room that those who have waited longer leave to this partition.
fn room(
    context: &Context,
    partition: &IPUPartition,
    open: Vec<ControllerView>,
    held: u32,
    now: Timestamp,
) -> Room {
    let line = context.turns.line(&context.watched, now);
    let me = line::me(partition, &line, now);
    let limit = SignedDuration::try_from(context.settings.overtaking_limit);
    let limit = limit.unwrap_or(SignedDuration::MAX);
    let taken = context.turns.taken(&me.uid);
    line::room(&me, &line, &taken, held, open, limit, now)
}

/// Where what is free was promised to others, an answer comes within seconds.
fn later(room: &Room, reasons: Vec<WaitingReason>) -> Answer {
    if room.is_promised {
        Answer::Later(reasons)
    } else {
        Answer::Wait(reasons)
    }
}

async fn tell_overruled(context: &Context, partition: &IPUPartition, why: &str) {
    tracing::warn!(partition = %partition.name_any(), why, "the placement policy was overruled");
    let uid = partition.uid().unwrap_or_default();
    if context.is_news(&uid, why) {
        let note = Note {
            is_warning: true,
            reason: "PolicyOverruled",
            message: shortened(why),
        };
        publish(context, partition, note).await;
    }
}
