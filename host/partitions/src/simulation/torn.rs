//! A run in which a gang loses a partition whose room others take: it gives back what it still has,
//! and gets all of it once there is room.

use std::collections::BTreeMap;

use vipu_client::model::{OperationState, ReadyState};

use super::api_server::{self, key_of};
use super::chance::Chance;
use super::coverage::{Coverage, Sight};
use super::invariants::{LIVENESS, demand};
use super::owners::Job;
use super::trace::Trace;
use super::trouble::foreign;
use super::world::World;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 60_000;

/// Within so many milliseconds the gang has all of its partitions, of which each forms for a minute at
/// most.
const WHOLE_WITHIN: u64 = 300_000;

/// How long others keep the room, in milliseconds.
const TAKEN_FOR: u64 = 15 * 60_000;

/// Between two looks, in milliseconds.
const LOOK: u64 = 5_000;

/// Runs the seed. A broken invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut chance = Chance::new(seed);
    let sizes: &[u32] = chance.pick(&[&[16][..], &[8, 8]]);
    let mut world = World::calm(seed, sizes, trace);
    world.longest_run = RUNS;
    let slots = chance.pick(&[2, 3]);
    let mut gang = Job::new("gang".to_owned(), String::new(), 4, slots);
    gang.gang = u32::try_from(slots).ok();
    let gang = world.add_job(gang);
    let mut now = 0;
    while now == 0 || !world.is_whole(gang) {
        demand(now < WHOLE_WITHIN, LIVENESS, || format!("no gang by {now}"));
        now += LOOK;
        world.run_until(now);
    }
    tear(&mut world, gang, chance.below(slots));
    let (end, mut since) = (now + TAKEN_FOR, BTreeMap::new());
    while now < end {
        now += LOOK;
        world.run_until(now);
        world.gangs_give_back_in_time(&mut since);
    }
    for (index, id) in std::mem::take(&mut world.foreign) {
        world.controllers[index].made.remove(&id);
    }
    world.settle();
    world.end();
    world.coverage
}

/// One partition of the gang is removed by hand, and others take all room.
fn tear(world: &mut World, gang: usize, slot: usize) {
    let object = world
        .api
        .get(key_of(gang, slot))
        .map(|one| one.object.clone());
    let id = object
        .as_deref()
        .and_then(api_server::offered)
        .unwrap_or_default();
    world.saw(Sight::Torn);
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
