//! A run in which the API server does not delete one IPUPartition whose owner is gone: the sweep
//! deletes the others nevertheless, and removes partitions without an owner.

use ipu_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::api_server::{self, key_of};
use super::coverage::Coverage;
use super::event_queue::{Event, Fate};
use super::invariants::{LIVENESS, demand};
use super::owners::Job;
use super::trace::Trace;
use super::world::World;

/// Longest time that a Pod runs, in milliseconds.
const RUNS: u64 = 60_000;

/// Deadline, in milliseconds, until all jobs are served: forming takes a minute at most.
const SERVED_WITHIN: u64 = 150_000;

/// Deadline, in milliseconds, until the sweep is settled: Pods of a job that is gone outlive it by
/// two minutes. A sweep, the grace period, another sweep, and a removal follow.
const SWEPT_WITHIN: u64 = 480_000;

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut world = World::calm(seed, &[8, 8], trace);
    world.longest_run = RUNS;
    let jobs = ["first", "second", "third"].map(|name| {
        let mut job = Job::new(name.to_owned(), String::new(), 2, 1);
        job.runs = None;
        world.add_job(job)
    });
    let [first, second, third] = jobs;
    let all_served = |world: &World| jobs.into_iter().all(|job| offered(world, job).is_some());
    world.wait(SERVED_WITHIN, "all jobs are served", all_served);
    world.undeletable.insert(key_of(first, 0));
    let orphan = abandon(&mut world, third);
    for job in [first, second] {
        world.event_queue.add(0, Event::Fate(job, Fate::Vanish));
    }
    let is_swept =
        |world: &World| world.api.get(key_of(second, 0)).is_none() && !world.exists(&orphan);
    world.wait(SWEPT_WITHIN, "the sweep is done", is_swept);
    let is_left = world.api.get(key_of(first, 0)).is_some();
    demand(is_left, LIVENESS, || {
        "what cannot be deleted is gone".to_owned()
    });
    world.undeletable.clear();
    world.settle();
    world.end();
    world.coverage
}

fn offered(world: &World, job: usize) -> Option<String> {
    let object = &world.api.get(key_of(job, 0))?.object;
    api_server::offered(object).map(str::to_owned)
}

/// Has the job's object deleted without its finalizer while all controllers deny access to the
/// operator. Its partitions are orphans from then on.
fn abandon(world: &mut World, job: usize) -> String {
    let (key, id) = (key_of(job, 0), offered(world, job).unwrap_or_default());
    let uid = |world: &World| {
        world
            .api
            .get(key)
            .map(|one| one.object.metadata.uid.clone())
    };
    let before = uid(world);
    for controller in &mut world.controllers {
        controller.denies = true;
    }
    world.api.update(key, |object| {
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::FORCE_ANNOTATION.to_owned(), "true".to_owned());
    });
    let now = Time(world.timestamp());
    world.api.delete(key, now);
    world.wait(SERVED_WITHIN, "it goes by force", |world| {
        uid(world) != before
    });
    for controller in &mut world.controllers {
        controller.denies = false;
    }
    id
}
