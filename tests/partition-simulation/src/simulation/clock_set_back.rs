//! A run in which the clock is set back while a controller refuses: the next request to it follows
//! within seconds of its refusal nevertheless, and not only when the clock has reached the old
//! time.

use ipu_api::ipupartition::{Attempt, AttemptOutcome};
use jiff::SignedDuration;

use super::api_server::{self, key_of};
use super::coverage::Coverage;
use super::owners::Job;
use super::rng::Rng;
use super::trace::Trace;
use super::world::World;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 60_000;

/// Deadline, in milliseconds, until a free controller has refused.
const REFUSED_WITHIN: u64 = 30_000;

/// Deadline from then, in milliseconds, until the job has its partition: the refusal counts for ten
/// seconds, waiting requests are evaluated about every ten seconds, and forming takes a minute at
/// most.
const SERVED_WITHIN: u64 = 150_000;

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let mut world = World::calm(seed, &[16], trace);
    world.longest_run = RUNS;
    world.controllers[0].largest = 0;
    let ipus = rng.pick(&[2, 4, 8]);
    let job = world.add_job(Job::new("mnist".to_owned(), String::new(), ipus, 1));
    world.wait(REFUSED_WITHIN, "the job is refused", |world| {
        was_refused(world, job)
    });
    let minutes = rng.pick(&[5, 60, 24 * 60]);
    world.set_clock_back(SignedDuration::from_mins(minutes));
    world.controllers[0].largest = u32::MAX;
    world.wait(SERVED_WITHIN, "the job has a partition", |world| {
        let object = world.api.get(key_of(job, 0));
        object.is_some_and(|one| api_server::offered(&one.object).is_some())
    });
    world.settle();
    world.end();
    world.coverage
}

fn was_refused(world: &World, job: usize) -> bool {
    let object = world.api.get(key_of(job, 0));
    let status = object.and_then(|one| one.object.status.as_ref());
    let mut attempts = status.iter().flat_map(|status| &status.attempts);
    attempts.any(|one: &Attempt| one.outcome == AttemptOutcome::Refused)
}
