//! A run in which a controller loses its state while Pods use what it had: nobody else is given those
//! IPUs as long as the Pods live, and everybody who waits is served once they have ended.

use super::api_server::{self, key_of};
use super::chance::Chance;
use super::coverage::{Coverage, Sight};
use super::invariants::{LIVENESS, demand};
use super::owners::Job;
use super::trace::Trace;
use super::world::World;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 300_000;

/// Within so many milliseconds the first job's Pod runs: forming takes a minute at most.
const RUNS_WITHIN: u64 = 120_000;

/// Between two looks, in milliseconds.
const LOOK: u64 = 1_000;

/// Runs the seed. A broken invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut chance = Chance::new(seed);
    let sizes: &[u32] = chance.pick(&[&[16][..], &[8, 8]]);
    let mut world = World::calm(seed, sizes, trace);
    world.longest_run = RUNS;
    world.gives_once = true;
    // Each fills its controller, or leaves a half of it free, of which nobody knows which it is later.
    let ipus = sizes[0] / chance.pick(&[1, 2]);
    for number in 0..sizes.len() {
        let name = format!("first-{number}");
        world.add_job(Job::new(name, String::new(), ipus, 1));
    }
    let all_run = |world: &World| world.pods.len() == sizes.len();
    while !all_run(&world) {
        let now = world.agenda.now();
        demand(now < RUNS_WITHIN, LIVENESS, || format!("no Pod by {now}"));
        world.run_until(now + LOOK);
    }
    for number in 0..3 {
        let mut job = Job::new(format!("later-{number}"), String::new(), 4, 1);
        job.runs = Some(0);
        world.add_job_later(job, chance.between(0, 60_000));
    }
    let later = world.agenda.now() + chance.between(0, 30_000);
    world.run_until(later);
    for controller in &mut world.controllers {
        controller.made.clear();
    }
    world.saw(Sight::Emptied);
    let later = world.agenda.now() + RUNS;
    while world.agenda.now() < later {
        let now = world.agenda.now();
        world.run_until(now + LOOK);
        let lost = (0..sizes.len()).filter_map(|job| world.api.get(key_of(job, 0)));
        let is_held = lost
            .filter(|one| api_server::is_lost_in_use(&one.object))
            .count();
        if is_held > 0 {
            world.saw(Sight::LostInUse);
        }
    }
    world.settle();
    world.end();
    world.coverage
}
