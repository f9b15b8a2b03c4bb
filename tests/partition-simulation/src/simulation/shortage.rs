//! A run in which the only controller for a request has fewer IPUs for a time, because its machines
//! restart, or is not in the list for a time. The request waits, and is served afterwards. One that
//! no controller could ever serve is rejected.

use ipu_api::ipupartition::PartitionPhase;
use vipu_client::model::{OperationState, ReadyState};

use super::api_server::{self, SLOTS, key_of};
use super::coverage::{Coverage, CoveragePoint};
use super::event_queue::{Event, Fate};
use super::faults::foreign;
use super::invariants::{NOT_REJECTED_EARLY, demand};
use super::owners::Job;
use super::rng::Rng;
use super::trace::Trace;
use super::world::World;

/// IPUs of the only controller for the request.
const LARGE: u32 = 64;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 60_000;

/// Time at which the shortage begins, in milliseconds.
const BEGINS: u64 = 30_000;

/// Longest time in which a controller is not in a list without a wrong line, in milliseconds.
const AWAY: u64 = 9 * 60_000;

/// Longest time of another shortage, in milliseconds.
const SHORT: u64 = 20 * 60_000;

/// Deadline, in milliseconds, until a request is served or rejected: forming takes a minute at
/// most.
const DECIDED_WITHIN: u64 = 150_000;

/// Interval between two checks, in milliseconds.
const CHECK_INTERVAL: u64 = 1_000;

/// A shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shortage {
    /// The controller reports a part of its IPUs.
    FewerIpus,
    /// The controller is not in the list.
    LeftList,
    /// The line of the controller in the list is wrong.
    WrongLine,
}

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let mut world = World::calm(seed, &[LARGE, 16], trace);
    world.longest_run = RUNS;
    let by_hand = foreign(0);
    let (ready, operation) = (ReadyState::Active, OperationState::Idle);
    world.controllers[0].insert(by_hand.clone(), 8, ready, operation);
    world.foreign.insert((0, by_hand.clone()));
    // The second one comes in the shortage.
    let waiting = [0, BEGINS + 1].map(|earliest| {
        let comes = earliest + rng.between(0, BEGINS);
        world.add_job_later(request(&mut rng, comes), comes)
    });
    let hopeless = Job::new("hopeless".to_owned(), String::new(), 2 * LARGE, 1);
    let hopeless = world.add_job(hopeless);
    world.run_until(BEGINS);
    shortage(&mut world, &mut rng, &waiting);
    world.controllers[0].made.remove(&by_hand);
    world.foreign.clear();
    for job in waiting {
        world.wait(DECIDED_WITHIN, "a request is served", |world| {
            (0..world.jobs[job].slots).all(|slot| world.has_partition(key_of(job, slot)))
        });
        world.event_queue.add(0, Event::Fate(job, Fate::Delete));
    }
    world.wait(
        DECIDED_WITHIN,
        "the hopeless request is rejected",
        |world| phase(world, hopeless, 0) == Some(PartitionPhase::Rejected),
    );
    world.settle();
    world.end();
    world.coverage
}

/// A request that suits the large controller alone: one partition, or a gang.
fn request(rng: &mut Rng, comes: u64) -> Job {
    let name = format!("comes-{comes}");
    if rng.permille(500) {
        return Job::new(name, String::new(), LARGE, 1);
    }
    let mut gang = Job::new(name, String::new(), LARGE / 2, 2);
    gang.gang = Some(2);
    gang
}

/// The shortage, in which no waiting request is rejected.
fn shortage(world: &mut World, rng: &mut Rng, waiting: &[usize]) {
    let kind = rng.pick(&[Shortage::FewerIpus, Shortage::LeftList, Shortage::WrongLine]);
    let lasts = rng.between(
        60_000,
        if kind == Shortage::LeftList {
            AWAY
        } else {
            SHORT
        },
    );
    world.note(|| format!("{kind:?} for {lasts} ms"));
    match kind {
        Shortage::FewerIpus => {
            world.cover(CoveragePoint::ShortOfIpus);
            world.controllers[0].reported = 0;
            if rng.permille(500) {
                world.kill(0, 1_000);
            }
        }
        Shortage::LeftList | Shortage::WrongLine => {
            world.controllers[0].is_listed = false;
            if kind == Shortage::WrongLine {
                world.cover(CoveragePoint::WrongLine);
                world.list_problem = Some("line 1 is not an entry".to_owned());
            }
            world.list_changed();
        }
    }
    let (begun, mut now) = (world.event_queue.now(), world.event_queue.now());
    while now < begun + lasts {
        now += CHECK_INTERVAL;
        if kind == Shortage::FewerIpus {
            // The machines come back one after the other.
            let share = u32::try_from(16 * (now - begun) / lasts).unwrap_or(16);
            world.controllers[0].reported = (LARGE / 16 * share).min(LARGE - 1);
        }
        world.run_until(now);
        check(world, waiting);
    }
    world.controllers[0].reported = LARGE;
    world.controllers[0].is_listed = true;
    world.list_problem = None;
    world.list_changed();
}

fn check(world: &mut World, waiting: &[usize]) {
    for job in waiting {
        for slot in 0..SLOTS {
            let phase = phase(world, *job, slot);
            demand(
                phase != Some(PartitionPhase::Rejected),
                NOT_REJECTED_EARLY,
                || format!("{} in slot {slot}", world.jobs[*job].name),
            );
            if expects_more(world, *job, slot) {
                world.cover(CoveragePoint::ExpectsMore);
            }
        }
    }
}

fn phase(world: &World, job: usize, slot: usize) -> Option<PartitionPhase> {
    let object = world.api.get(key_of(job, slot));
    object.map(|stored| api_server::phase(&stored.object))
}

/// Whether a request waits for IPUs that a controller may have again.
fn expects_more(world: &World, job: usize, slot: usize) -> bool {
    let object = world.api.get(key_of(job, slot));
    let status = object.and_then(|stored| stored.object.status.as_ref());
    let mut reasons = status.iter().flat_map(|status| &status.waiting);
    reasons.any(|reason| {
        let texts = [
            "it may have them again",
            "has left the admin's list",
            "line 1 is not",
        ];
        texts.iter().any(|text| reason.reason.contains(text))
    })
}
