//! One run from a seed: a world, jobs and weather by chance, then quiet, then the end of everything.

use super::agenda::{Event, Fate};
use super::api_server::SLOTS;
use super::chance::Chance;
use super::coverage::Coverage;
use super::crowd;
use super::emptied;
use super::owners::Job;
use super::set_back;
use super::stubborn;
use super::torn;
use super::trace::Trace;
use super::trouble::Weather;
use super::undeletable;
use super::world::World;

/// Jobs that come in one run, besides those that come again.
const JOBS: usize = 10;

/// When the last job comes, in milliseconds.
const COMING: u64 = 120_000;

/// Of so many seeds one is a crowd in which nothing goes wrong, one a gang that loses a partition, one a
/// controller that removes nothing, one a controller that loses its state, one a clock that is set back, and one
/// an object that cannot be deleted.
const CROWDS: u64 = 40;

/// Runs the seed. A broken invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    match seed % CROWDS {
        5 => return set_back::run(seed, trace),
        10 => return stubborn::run(seed, trace),
        15 => return undeletable::run(seed, trace),
        20 => return torn::run(seed, trace),
        30 => return emptied::run(seed, trace),
        39 => return crowd::run(seed, trace),
        _ => {}
    }
    let mut chance = Chance::new(seed);
    let sizes: Vec<u32> = (0..chance.between(2, 5))
        .map(|_| chance.pick(&[4, 8, 16, 64]))
        .collect();
    let mut world = World::calm(seed, &sizes, trace);
    world.weather = weather(&mut chance);
    world.has_lease = chance.permille(750);
    if !world.has_lease {
        world.take_over(1);
    }
    for number in 0..JOBS {
        add_job(&mut world, &mut chance, number);
    }
    if world.weather.troubles > 0 {
        world.agenda.add(1_000, Event::Trouble);
    }
    let troubled = chance.between(COMING, 2 * COMING);
    world.run_until(troubled);
    world.settle();
    world.end();
    world.coverage
}

fn weather(chance: &mut Chance) -> Weather {
    Weather {
        calls: chance.pick(&[0, 20, 100, 300]),
        requests: chance.pick(&[0, 10, 50]),
        stalls: chance.pick(&[0, 2, 10, 30]),
        slow: chance.pick(&[0, 100, 500]),
        failures: chance.pick(&[0, 50, 200]),
        troubles: chance.pick(&[0, 1_000, 4_000, 15_000]),
    }
}

fn add_job(world: &mut World, chance: &mut Chance, number: usize) {
    let sizes = [1, 1, 2, 2, 4, 4, 8, 16, 64, 128];
    let mut ipus = chance.pick(&sizes);
    if chance.permille(10) {
        ipus = 3;
    }
    let slots = 1 + chance.below(SLOTS);
    let mut job = Job::new(format!("job-{number}"), String::new(), ipus, slots);
    job.is_stranger = chance.permille(250);
    if !job.is_stranger && chance.permille(200) {
        job.gang = u32::try_from(slots).ok();
    }
    job.is_reborn = chance.permille(200);
    job.runs = chance.pick(&[None, Some(0), Some(1), Some(3)]);
    let comes = chance.between(0, COMING);
    let index = world.add_job_later(job, comes);
    let later = |chance: &mut Chance| comes + chance.between(1_000, 2 * COMING);
    let scaled = chance.pick(&[0, 1, 1, 2]);
    for _ in 0..scaled {
        let fate = Fate::Scale(chance.below(SLOTS + 1));
        let time = later(chance);
        world.agenda.add(time, Event::Fate(index, fate));
    }
    let fate = chance.pick(&[
        None,
        None,
        Some(Fate::Delete),
        Some(Fate::Delete),
        Some(Fate::Vanish),
        Some(Fate::AskReset),
    ]);
    if let Some(fate) = fate {
        let time = later(chance);
        world.agenda.add(time, Event::Fate(index, fate));
    }
}
