//! A run in which a gang loses a partition, and others take its capacity: the gang releases its
//! other partitions, and gets all of them when there is free capacity.

use std::collections::BTreeMap;

use vipu_client::model::{OperationState, ReadyState};

use super::api_server::{self, key_of};
use super::coverage::{Coverage, CoveragePoint};
use super::faults::foreign;
use super::invariants::{LIVENESS, demand};
use super::owners::Job;
use super::rng::Rng;
use super::trace::Trace;
use super::world::World;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 60_000;

/// Deadline, in milliseconds, until the gang has all of its partitions, each of which forms for a
/// minute at most.
const WHOLE_WITHIN: u64 = 300_000;

/// Time for which other jobs hold the capacity, in milliseconds.
const TAKEN_FOR: u64 = 15 * 60_000;

/// Interval between two checks, in milliseconds.
const CHECK_INTERVAL: u64 = 5_000;

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let sizes: &[u32] = rng.pick(&[&[16][..], &[8, 8]]);
    let mut world = World::calm(seed, sizes, trace);
    world.longest_run = RUNS;
    let slots = rng.pick(&[2, 3]);
    let mut gang = Job::new("gang".to_owned(), String::new(), 4, slots);
    gang.gang = u32::try_from(slots).ok();
    let gang = world.add_job(gang);
    let mut now = 0;
    while now == 0 || !world.is_whole(gang) {
        demand(now < WHOLE_WITHIN, LIVENESS, || format!("no gang by {now}"));
        now += CHECK_INTERVAL;
        world.run_until(now);
    }
    break_gang(&mut world, gang, rng.below(slots));
    let (end, mut since) = (now + TAKEN_FOR, BTreeMap::new());
    while now < end {
        now += CHECK_INTERVAL;
        world.run_until(now);
        if world.holds_a_part(gang) {
            world.cover(CoveragePoint::HeldInPart);
        }
        world.gangs_release_in_time(&mut since);
    }
    for (index, id) in std::mem::take(&mut world.foreign) {
        world.controllers[index].made.remove(&id);
    }
    world.settle();
    world.end();
    world.coverage
}

/// A user removes one partition of the gang, and other jobs take all capacity.
fn break_gang(world: &mut World, gang: usize, slot: usize) {
    let object = world
        .api
        .get(key_of(gang, slot))
        .map(|one| one.object.clone());
    let id = object
        .as_deref()
        .and_then(api_server::offered)
        .unwrap_or_default();
    world.cover(CoveragePoint::GangBroken);
    for (index, controller) in world.controllers.iter_mut().enumerate() {
        controller.made.remove(id);
        let free = controller.inventory().free();
        world.numbers += 1;
        let other = foreign(world.numbers);
        controller.insert(
            other.clone(),
            free,
            ReadyState::Active,
            OperationState::Idle,
        );
        world.foreign.insert((index, other));
    }
}
