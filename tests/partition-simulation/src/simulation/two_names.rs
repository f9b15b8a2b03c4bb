//! A run with one controller under two names in the list. Its IPUs count once: a gang for which
//! they suffice only twice is rejected, and a drain under the first name ends no job, since there
//! is no other controller to go to.

use ipu_api::ipupartition::{ControllerRef, PartitionPhase};
use ipu_api::vipu_controller::CordonState;

use super::api_server::{self, key_of};
use super::coverage::{Coverage, CoveragePoint};
use super::event_queue::{Event, Fate};
use super::invariants::{COUNTED_ONCE, demand};
use super::owners::Job;
use super::rng::Rng;
use super::trace::Trace;
use super::world::World;

/// IPUs of the controller.
const IPUS: u32 = 16;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 60_000;

/// Deadline, in milliseconds, until the job has its partition: forming takes a minute at most.
const SERVED_WITHIN: u64 = 120_000;

/// Deadline, in milliseconds, until the gang is rejected.
const REJECTED_WITHIN: u64 = 60_000;

/// Time for which the controller is drained, in milliseconds.
const DRAINED: u64 = 10 * 60_000;

/// Interval between two checks, in milliseconds.
const CHECK_INTERVAL: u64 = 1_000;

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let mut world = World::calm(seed, &[IPUS], trace);
    world.longest_run = RUNS;
    add_second_name(&mut world);
    let first = world.controllers[0].reference.name.clone();
    // The first partition is requested under either name.
    if rng.permille(500) {
        world.cordons.insert(first.clone(), CordonState::Cordoned);
    }
    let ipus = rng.pick(&[2, 4, 8]);
    let job = world.add_job(Job::new("mnist".to_owned(), String::new(), ipus, 1));
    world.wait(SERVED_WITHIN, "the job has a partition", |world| {
        world.has_partition(key_of(job, 0))
    });
    world.cordons.clear();
    gang_is_rejected(&mut world);
    let drain_time = world.event_queue.now() + rng.between(0, 60_000);
    world.run_until(drain_time);
    job_stays(&mut world, job, &first);
    world.settle();
    world.end();
    world.coverage
}

fn add_second_name(world: &mut World) {
    world.cover(CoveragePoint::TwoNames);
    let entry = ControllerRef {
        name: "address-of-pod1:8090".to_owned(),
        host: "address-of-pod1".to_owned(),
        ..world.controllers[0].reference.clone()
    };
    world.second_names.push((entry, 0));
}

/// A gang that needs all IPUs of the controller twice is rejected.
fn gang_is_rejected(world: &mut World) {
    let mut gang = Job::new("gang".to_owned(), String::new(), IPUS, 2);
    gang.gang = Some(2);
    let gang = world.add_job(gang);
    let is_rejected = |world: &World| {
        (0..2).all(|slot| {
            let object = world.api.get(key_of(gang, slot));
            object
                .is_some_and(|stored| api_server::phase(&stored.object) == PartitionPhase::Rejected)
        })
    };
    let deadline = world.event_queue.now() + REJECTED_WITHIN;
    while !is_rejected(world) {
        let now = world.event_queue.now();
        demand(now < deadline, COUNTED_ONCE, || "the gang waits".to_owned());
        world.run_until(now + CHECK_INTERVAL);
    }
    world.event_queue.add(0, Event::Fate(gang, Fate::Delete));
}

/// The controller is drained for a time, and the job keeps its partition.
fn job_stays(world: &mut World, job: usize, controller: &str) {
    let id = |world: &World| {
        let object = world.api.get(key_of(job, 0));
        let status = object.and_then(|stored| stored.object.status.clone());
        status.and_then(|status| status.partition_id)
    };
    let before = id(world);
    world
        .cordons
        .insert(controller.to_owned(), CordonState::Draining);
    let end = world.event_queue.now() + DRAINED;
    while world.event_queue.now() < end {
        let next = world.event_queue.now() + CHECK_INTERVAL;
        world.run_until(next);
        demand(id(world) == before, COUNTED_ONCE, || {
            format!("{before:?} is left for {:?}", id(world))
        });
    }
    world.cordons.clear();
}
