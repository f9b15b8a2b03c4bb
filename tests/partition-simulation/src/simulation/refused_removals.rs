//! A run in which a controller removes nothing: a partition that has to leave it is created
//! elsewhere nevertheless, and the first one is removed when the controller removes partitions
//! again.

use ipu_api::vipu_controller::CordonState;

use super::api_server::{self, key_of};
use super::coverage::Coverage;
use super::invariants::{LIVENESS, demand};
use super::owners::Job;
use super::rng::Rng;
use super::trace::Trace;
use super::world::World;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 60_000;

/// Deadline, in milliseconds, until the job has a partition that is formed, or formed elsewhere:
/// forming takes a minute at most, and Pods that are deleted take as long.
const SERVED_WITHIN: u64 = 300_000;

/// Interval between two checks, in milliseconds.
const CHECK_INTERVAL: u64 = 5_000;

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let mut world = World::calm(seed, &[8, 8], trace);
    world.longest_run = RUNS;
    let ipus = rng.pick(&[2, 4, 8]);
    let job = world.add_job(Job::new("mnist".to_owned(), String::new(), ipus, 1));
    let first = served(&mut world, job, None);
    let mut controllers = world.controllers.iter();
    let on = controllers.position(|one| one.made.contains_key(&first));
    let on = on.expect("what is offered is somewhere");
    world.controllers[on].refuses_removals = true;
    let name = world.controllers[on].reference.name.clone();
    world.cordons.insert(name.clone(), CordonState::Draining);
    served(&mut world, job, Some(&first));
    world.cordons.remove(&name);
    world.settle();
    world.end();
    world.coverage
}

/// Runs until the job is offered a partition that is not `old`.
fn served(world: &mut World, job: usize, old: Option<&str>) -> String {
    let end = world.event_queue.now() + SERVED_WITHIN;
    loop {
        let object = world.api.get(key_of(job, 0)).map(|one| one.object.clone());
        let offered = object.as_deref().and_then(api_server::offered);
        if let Some(offered) = offered.filter(|id| Some(*id) != old) {
            return offered.to_owned();
        }
        let now = world.event_queue.now();
        demand(now < end, LIVENESS, || {
            format!("nothing but {old:?} is offered: {object:?}")
        });
        world.run_until(now + CHECK_INTERVAL);
    }
}
