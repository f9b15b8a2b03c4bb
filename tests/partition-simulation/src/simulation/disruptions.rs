//! A run without faults in which Kubernetes disrupts Pods of jobs, one after the other: each costs
//! at most one reset of a partition, also where nodes reject the next Pods for a while; and the job
//! keeps its partitions.

use std::collections::BTreeMap;

use super::api_server::{SLOTS, key_of};
use super::coverage::Coverage;
use super::invariants::{LIVENESS, demand};
use super::kubelet::Disruption;
use super::owners::Job;
use super::rng::Rng;
use super::trace::Trace;
use super::world::World;

/// Disruptions of one run.
const DISRUPTIONS: usize = 8;

/// Deadline, in milliseconds, until all Pods run: forming and a reset take a minute at most, a Pod
/// on an unreachable node ends within `RUNS`, and the back-off after rejections and restarts grows
/// to some minutes.
const RUNS_WITHIN: u64 = 20 * 60_000;

/// Longest time that a Pod takes to end, in milliseconds.
const RUNS: u64 = 60_000;

/// Time for which all Pods run before the next disruption, in milliseconds.
const PAUSE: u64 = 90_000;

const CANNOT_MOVE: &str = "a job without a fault keeps its partitions";

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let mut world = World::calm(seed, &[16], trace);
    world.longest_run = RUNS;
    let jobs = [(1, 1, false), (1, 2, false), (2, 1, true), (1, 2, true)];
    for (number, (slots, workers, has_launcher)) in jobs.into_iter().enumerate() {
        let mut job = Job::new(format!("job-{number}"), String::new(), 2, slots);
        job.workers = workers;
        job.gang = u32::try_from(slots).ok().filter(|_| has_launcher);
        world.add_job(job);
    }
    // The jobs have come; their Pods have no end of themselves from now on.
    world.run_until(1);
    world.is_over = true;
    runs(&mut world);
    let before = partitions(&world);
    world.job_history.resets_left = Some(BTreeMap::new());
    for _ in 0..DISRUPTIONS {
        let pause = world.event_queue.now() + rng.between(1, PAUSE);
        world.run_until(pause);
        disrupt(&mut world, &mut rng);
        runs(&mut world);
        demand(partitions(&world) == before, CANNOT_MOVE, || {
            format!("{:?} after {before:?}", partitions(&world))
        });
    }
    world.job_history.resets_left = None;
    world.settle();
    world.end();
    world.coverage
}

/// Disrupts a Pod. Nodes reject some of the next Pods.
fn disrupt(world: &mut World, rng: &mut Rng) {
    let pods: Vec<(u64, usize)> = world
        .server
        .pods()
        .map(|(number, pod)| (number, pod.job))
        .collect();
    let (pod, job) = rng.pick(&pods);
    let of_job = (0..SLOTS).filter_map(|slot| world.api.get(key_of(job, slot)));
    let ids = of_job.filter_map(|stored| stored.object.status.as_ref()?.partition_id.clone());
    // All instances of a launcher restart together.
    let left = ids.map(|id| (id, 1)).collect();
    world.job_history.resets_left = Some(left);
    world.rejections = rng.pick(&[0, 1, 2, 4]);
    let disruption = rng.pick(&[Disruption::Evicted, Disruption::Preempted]);
    world.disrupt_pod(pod, disruption);
}

/// Runs until the Pods of all jobs run.
fn runs(world: &mut World) {
    let end = world.event_queue.now() + RUNS_WITHIN;
    while let Some(complaint) = world.job_complaint().or_else(|| waiting(world)) {
        let now = world.event_queue.now();
        demand(now < end, LIVENESS, || complaint);
        world.run_until(now + 1_000);
    }
}

/// A job without all of its programs, or with a Pod that ends.
fn waiting(world: &World) -> Option<String> {
    let wanted = 1 + 2 + (2 + 1) + (2 + 1);
    let mut pods = world.server.pods();
    let is_over = pods.any(|(_, pod)| pod.is_deleted() || pod.has_ended());
    let programs = world.pods.len();
    (programs < wanted || is_over).then(|| format!("{programs} Pods of {wanted} run"))
}

/// The IPUPartitions by UID, with the partitions on controllers.
fn partitions(world: &World) -> BTreeMap<String, Option<String>> {
    let objects = world.api.list().map(|(_, stored)| &stored.object);
    let each = objects.map(|object| {
        let id = object
            .status
            .as_ref()
            .and_then(|one| one.partition_id.clone());
        (object.metadata.uid.clone().unwrap_or_default(), id)
    });
    each.collect()
}
