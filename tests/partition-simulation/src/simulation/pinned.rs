//! A run in which large requests are pinned to one controller each, and none of the controllers can
//! serve its request. Others still start on most of the controllers, and the pinned requests are
//! served in the end.

use std::time::Duration;

use vipu_client::model::{OperationState, ReadyState};

use super::api_server::key_of;
use super::coverage::{Coverage, CoveragePoint};
use super::event_queue::{Event, Fate};
use super::invariants::{SHARED, demand};
use super::owners::Job;
use super::rng::Rng;
use super::trace::Trace;
use super::world::World;

/// IPUs of each controller.
const IPUS: u32 = 8;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 60_000;

/// Waiting time after which capacity is reserved.
const LIMIT: Duration = Duration::from_secs(30);

/// Time at which the pinned requests have waited for the limit many times, in milliseconds.
const WAITED: u64 = 10 * 60_000;

/// Deadline, in milliseconds, until a small request is served: forming takes a minute at most.
const SERVED_WITHIN: u64 = 120_000;

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let count = rng.pick(&[4, 8, 16]);
    let mut world = World::calm(seed, &vec![IPUS; count], trace);
    world.settings.backfill_limit = LIMIT;
    world.longest_run = RUNS;
    let held: Vec<(usize, String)> = (0..count)
        .map(|index| (index, format!("handmade-{index}")))
        .collect();
    for (index, id) in &held {
        let (ready, operation) = (ReadyState::Active, OperationState::Idle);
        world.controllers[*index].insert(id.clone(), 1, ready, operation);
        world.foreign.insert((*index, id.clone()));
    }
    let pinned: Vec<usize> = (0..count)
        .map(|index| add_pinned(&mut world, &mut rng, index))
        .collect();
    world.run_until(WAITED);
    // Each needs an IPU of its own, and at least half of the controllers have seven.
    let small: Vec<usize> = (0..3 * count)
        .map(|number| world.add_job(Job::new(format!("small-{number}"), String::new(), 1, 1)))
        .collect();
    world.run_until(WAITED + SERVED_WITHIN);
    for job in &small {
        demand(world.has_partition(key_of(*job, 0)), SHARED, || {
            let object = world.api.get(key_of(*job, 0));
            format!("{}: {object:?}", world.jobs[*job].name)
        });
    }
    if pinned.iter().any(|job| is_reserved_for(&world, *job)) {
        world.cover(CoveragePoint::ReservedForPinned);
    }
    for (index, id) in held {
        world.controllers[index].made.remove(&id);
    }
    world.foreign.clear();
    for job in small {
        world.event_queue.add(0, Event::Fate(job, Fate::Delete));
    }
    world.settle();
    for job in pinned {
        demand(world.has_partition(key_of(job, 0)), SHARED, || {
            world.jobs[job].name.clone()
        });
    }
    world.end();
    world.coverage
}

/// A request for all IPUs of one controller.
fn add_pinned(world: &mut World, rng: &mut Rng, index: usize) -> usize {
    let mut job = Job::new(format!("pinned-{index}"), String::new(), IPUS, 1);
    job.pinned_to = Some(index);
    world.add_job_later(job, rng.between(0, 60_000))
}

/// Whether another request waits because a controller is reserved for this one.
fn is_reserved_for(world: &World, job: usize) -> bool {
    let name = &world.jobs[job].name;
    let reserved = format!("is reserved for default/{name} ");
    let statuses = world
        .api
        .list()
        .filter_map(|(_, one)| one.object.status.as_ref());
    let mut reasons = statuses.flat_map(|status| &status.waiting);
    reasons.any(|reason| reason.reason.contains(&reserved))
}
