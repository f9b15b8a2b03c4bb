//! One run from a seed: a random world with random jobs and fault rates, then a time without
//! faults, then the end.

use super::api_server::SLOTS;
use super::broken_gang;
use super::clock_set_back;
use super::coverage::Coverage;
use super::disruptions;
use super::event_queue::{Event, Fate};
use super::faults::FaultRates;
use super::load;
use super::lost_state;
use super::owners::Job;
use super::pinned;
use super::refused_removals;
use super::rng::Rng;
use super::shortage;
use super::trace::Trace;
use super::two_names;
use super::two_releases;
use super::undeletable;
use super::world::World;

/// Jobs that come in one run, besides those that come again.
const JOBS: usize = 10;

/// Creation time of the last job, in milliseconds.
const COMING: u64 = 120_000;

/// Of this number of seeds, one is a load test without faults, one a gang that loses a partition,
/// one a controller that removes nothing, one a controller that loses its state, one a clock that
/// is set back, one an object that cannot be deleted, one a world without faults whose Pods are
/// disrupted, one a controller that lacks IPUs for a time, one with large requests that are pinned,
/// one a controller with two names, and one with two releases.
const PERIOD: u64 = 40;

/// Runs the seed. A broken invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    match seed % PERIOD {
        2 => return shortage::run(seed, trace),
        5 => return clock_set_back::run(seed, trace),
        10 => return refused_removals::run(seed, trace),
        12 => return pinned::run(seed, trace),
        15 => return undeletable::run(seed, trace),
        18 => return two_names::run(seed, trace),
        20 => return broken_gang::run(seed, trace),
        25 => return disruptions::run(seed, trace),
        30 => return lost_state::run(seed, trace),
        35 => return two_releases::run(seed, trace),
        39 => return load::run(seed, trace),
        _ => {}
    }
    let (mut world, faulty) = random_world(seed, trace);
    world.run_until(faulty);
    world.settle();
    world.end();
    world.coverage
}

/// The random world of this seed, and the time until which its faults occur, in milliseconds.
pub(super) fn random_world(seed: u64, trace: Trace) -> (World, u64) {
    let mut rng = Rng::new(seed);
    let sizes: Vec<u32> = (0..rng.between(2, 5))
        .map(|_| rng.pick(&[4, 8, 16, 64]))
        .collect();
    let mut world = World::calm(seed, &sizes, trace);
    world.fault_rates = fault_rates(&mut rng);
    world.has_lease = rng.permille(750);
    if !world.has_lease {
        world.become_leader(1);
    }
    for number in 0..JOBS {
        add_job(&mut world, &mut rng, number);
    }
    if world.fault_rates.interval > 0 {
        world.event_queue.add(1_000, Event::Fault);
    }
    let faulty = rng.between(COMING, 2 * COMING);
    (world, faulty)
}

fn fault_rates(rng: &mut Rng) -> FaultRates {
    FaultRates {
        calls: rng.pick(&[0, 20, 100, 300]),
        requests: rng.pick(&[0, 10, 50]),
        stalls: rng.pick(&[0, 2, 10, 30]),
        slow: rng.pick(&[0, 100, 500]),
        failures: rng.pick(&[0, 50, 200]),
        interval: rng.pick(&[0, 1_000, 4_000, 15_000]),
    }
}

fn add_job(world: &mut World, rng: &mut Rng, number: usize) {
    let sizes = [1, 1, 2, 2, 4, 4, 8, 16, 64, 128];
    let mut ipus = rng.pick(&sizes);
    let slots = 1 + rng.below(SLOTS);
    let is_foreign = rng.permille(250);
    if is_foreign && rng.permille(40) {
        ipus = 3;
    }
    let mut job = Job::new(format!("job-{number}"), String::new(), ipus, slots);
    job.is_foreign = is_foreign;
    if !is_foreign && rng.permille(250) {
        job.gang = u32::try_from(slots).ok();
    }
    if ipus > 1 && rng.permille(300) {
        job.workers = 2;
    }
    job.ttl = rng.pick(&[None, Some(0), Some(60)]);
    job.is_reborn = rng.permille(200);
    job.runs = rng.pick(&[None, Some(0), Some(1), Some(3)]);
    let comes = rng.between(0, COMING);
    let is_gang = job.gang.is_some();
    let index = world.add_job_later(job, comes);
    let later = |rng: &mut Rng| comes + rng.between(1_000, 2 * COMING);
    // The number of instances of a launcher does not change.
    let scaled = if is_gang { 0 } else { rng.pick(&[0, 1, 1, 2]) };
    for _ in 0..scaled {
        let fate = Fate::Scale(rng.below(SLOTS + 1));
        let time = later(rng);
        world.event_queue.add(time, Event::Fate(index, fate));
    }
    let fate = rng.pick(&[
        None,
        None,
        Some(Fate::Delete),
        Some(Fate::Delete),
        Some(Fate::Vanish),
        Some(Fate::AskReset),
    ]);
    if let Some(fate) = fate {
        let time = later(rng);
        world.event_queue.add(time, Event::Fate(index, fate));
    }
}
