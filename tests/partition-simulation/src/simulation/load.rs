//! A load test without faults but with too little capacity: many small jobs come and go, and large
//! ones and gangs among them have to be served nevertheless.

use std::collections::BTreeMap;
use std::time::Duration;

use super::api_server::Key;
use super::coverage::{Coverage, CoveragePoint};
use super::invariants::{BOUNDED, GANG_COMPLETE, demand};
use super::owners::Job;
use super::rng::Rng;
use super::sim_adapter;
use super::trace::Trace;
use super::world::World;

/// Small jobs, so many that some always wait.
const SMALL: usize = 60;

/// Creation time of the last of them, in milliseconds.
const COMING: u64 = 450_000;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 30_000;

/// Waiting time after which capacity is reserved, and how long a gang holds a part of its
/// partitions.
const LIMIT: Duration = Duration::from_secs(30);

/// Longest time that the earliest request may wait, in milliseconds: the limit for each of two
/// controllers, then all partitions on them are created (a minute at most), used and removed, and
/// the same again for its own.
const WAITS: u64 = 300_000;

/// Longest time for which a gang may hold a part of its partitions, in milliseconds: the last one
/// is formed, observed at the next regular reconcile, held for its limit, and removed.
const HOLDS: u64 = 200_000;

/// Interval between two checks, in milliseconds.
const CHECK_INTERVAL: u64 = 5_000;

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let sizes: &[u32] = rng.pick(&[&[8][..], &[8, 8], &[16]]);
    let mut world = World::calm(seed, sizes, trace);
    world.settings.backfill_limit = LIMIT;
    world.settings.gang_patience = LIMIT;
    world.longest_run = RUNS;
    let largest = sizes.iter().copied().max().unwrap_or_default();
    for number in 0..SMALL {
        let ipus = rng.pick(&[2, 4, 4]);
        come(
            &mut world,
            &mut rng,
            Job::new(format!("small-{number}"), String::new(), ipus, 1),
        );
    }
    for number in 0..3 {
        let job = Job::new(format!("large-{number}"), String::new(), largest, 1);
        come(&mut world, &mut rng, job);
        let mut gang = Job::new(format!("gang-{number}"), String::new(), 4, 2);
        gang.gang = Some(2);
        come(&mut world, &mut rng, gang);
    }
    let mut watch = Watch::default();
    while world.event_queue.now() < COMING + WAITS {
        let next = world.event_queue.now() + CHECK_INTERVAL;
        world.run_until(next);
        watch.check(&mut world);
    }
    world.settle();
    world.end();
    world.coverage
}

fn come(world: &mut World, rng: &mut Rng, mut job: Job) {
    job.runs = Some(0);
    world.add_job_later(job, rng.between(0, COMING));
}

/// Since when a condition holds that must end.
#[derive(Default)]
struct Watch {
    earliest: Option<(Key, u64)>,
    parts: BTreeMap<usize, u64>,
}

impl Watch {
    fn check(&mut self, world: &mut World) {
        let now = world.event_queue.now();
        let earliest = earliest(world);
        let since = self.earliest.filter(|(key, _)| Some(*key) == earliest);
        self.earliest = earliest.map(|key| (key, since.map_or(now, |(_, since)| since)));
        if let Some((key, since)) = self.earliest {
            demand(now - since < WAITS, BOUNDED, || {
                format!("{} is the eldest since {since}", world.name(key))
            });
        }
        for job in 0..world.jobs.len() {
            if !world.holds_a_part(job) {
                self.parts.remove(&job);
                continue;
            }
            world.cover(CoveragePoint::HeldInPart);
            let since = *self.parts.entry(job).or_insert(now);
            demand(now - since < HOLDS, GANG_COMPLETE, || {
                format!("{} since {since}", world.jobs[job].name)
            });
        }
    }
}

/// The earliest waiting request.
fn earliest(world: &World) -> Option<Key> {
    let objects = world.api.list();
    let objects = objects.map(|(_, stored)| stored.object.as_ref());
    let found = sim_adapter::queue(objects, world.timestamp());
    let uid = found.first()?.uid;
    let mut objects = world.api.list();
    let it = objects.find(|(_, stored)| super::queue::uid(&stored.object) == uid);
    it.map(|(key, _)| key)
}
