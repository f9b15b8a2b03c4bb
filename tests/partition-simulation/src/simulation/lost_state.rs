//! A run in which a controller loses its state while Pods use its partitions: no other partition
//! gets those IPUs as long as the Pods live, and all waiting requests are served afterwards.

use super::api_server::{self, key_of};
use super::coverage::{Coverage, CoveragePoint};
use super::invariants::{LIVENESS, demand};
use super::owners::Job;
use super::rng::Rng;
use super::trace::Trace;
use super::world::World;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 300_000;

/// Deadline, in milliseconds, until the Pods of the first jobs run at the same time: forming takes
/// a minute at most, and one of them may end and start again before.
const RUNS_WITHIN: u64 = 600_000;

/// Interval between two checks, in milliseconds.
const CHECK_INTERVAL: u64 = 1_000;

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let sizes: &[u32] = rng.pick(&[&[16][..], &[8, 8]]);
    let mut world = World::calm(seed, sizes, trace);
    world.longest_run = RUNS;
    world.assigns_once = true;
    // Each fills its controller, or leaves a half of it free; which half is unknown after the loss.
    let ipus = sizes[0] / rng.pick(&[1, 2]);
    for number in 0..sizes.len() {
        let name = format!("first-{number}");
        world.add_job(Job::new(name, String::new(), ipus, 1));
    }
    let all_run = |world: &World| world.pods.len() == sizes.len();
    while !all_run(&world) {
        let now = world.event_queue.now();
        demand(now < RUNS_WITHIN, LIVENESS, || format!("no Pod by {now}"));
        world.run_until(now + CHECK_INTERVAL);
    }
    for number in 0..3 {
        let mut job = Job::new(format!("later-{number}"), String::new(), 4, 1);
        job.runs = Some(0);
        world.add_job_later(job, rng.between(0, 60_000));
    }
    let later = world.event_queue.now() + rng.between(0, 30_000);
    world.run_until(later);
    for controller in &mut world.controllers {
        controller.made.clear();
    }
    world.cover(CoveragePoint::Emptied);
    let later = world.event_queue.now() + RUNS;
    while world.event_queue.now() < later {
        let now = world.event_queue.now();
        world.run_until(now + CHECK_INTERVAL);
        let lost = (0..sizes.len()).filter_map(|job| world.api.get(key_of(job, 0)));
        let is_held = lost
            .filter(|one| api_server::is_lost_in_use(&one.object))
            .count();
        if is_held > 0 {
            world.cover(CoveragePoint::LostInUse);
        }
    }
    world.settle();
    world.end();
    world.coverage
}
