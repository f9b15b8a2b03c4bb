//! Drives both cores, of jobs and of the ledger, with many objects, Pods and controllers through
//! everything that can go wrong. It checks safety at every step, and liveness at the end.
//!
//! A run is its seed: the clock is virtual, one event follows the other, and all chance comes from
//! it. `IPU_OPERATOR_SIMULATED_LIVES` says how many jobs come and go,
//! `IPU_OPERATOR_SIMULATION_FIRST_SEED` with which seed that begins (0 where nothing is said, so
//! that two runs are the same), and `IPU_OPERATOR_SIMULATION_SEED` runs one seed and prints all
//! that happens in it.
//!
//! The simulation omits a reset that is delivered again after its answer. A reset carries only an
//! id, so no controller can distinguish the second delivery from the first.

mod accounts;
mod adopted;
pub(super) mod api_server;
mod assigned_ipus;
mod broken_gang;
mod calls;
mod clock_set_back;
mod controller_list;
pub(super) mod controllers;
mod coverage;
mod departed;
mod disruptions;
pub(super) mod event_queue;
pub(super) mod evidence;
mod executor;
mod fates;
mod faults;
pub(super) mod invariants;
mod job_controller;
mod job_liveness;
mod job_objects;
mod job_reconcile;
mod job_rules;
mod job_server;
mod job_watches;
mod job_writes;
mod kubelet;
mod late_watch;
mod liveness;
mod load;
mod lost_state;
pub(super) mod missing;
mod outcomes;
pub(super) mod owners;
mod pinned;
mod pod_faults;
mod pod_status;
mod proptests;
mod queue;
mod refused_removals;
mod repair;
mod replica;
mod restore;
mod rng;
mod scenario;
mod shortage;
mod steady;
mod sweeper;
pub(super) mod trace;
mod two_names;
mod two_releases;
mod undeletable;
mod world;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ipu_api::naming::Identity;

use super::sim_adapter;
use coverage::Coverage;
use executor::CallFault;
use owners::Job;
use trace::{Detail, Trace};
use world::{Death, World};

/// Jobs that come and go in a plain test run.
const LIVES: u64 = 5_000;

/// Lines of the trace that are printed for a run that fails.
const LINES: usize = 60;

pub(super) fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}; it must be a number")),
    )
}

#[test]
fn a_simulation_of_many_lives_breaks_no_invariant() {
    if let Some(seed) = variable("IPU_OPERATOR_SIMULATION_SEED") {
        let trace = Trace::new(Detail::Everything);
        let result = attempt(seed, &trace);
        println!("{}", trace.text());
        result.unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        return;
    }
    let wanted = variable("IPU_OPERATOR_SIMULATED_LIVES").unwrap_or(LIVES);
    let first = variable("IPU_OPERATOR_SIMULATION_FIRST_SEED").unwrap_or(0);
    println!("the first seed is {first}");
    let sum = simulate(first, wanted);
    println!("{}", sum.table());
    if wanted >= LIVES {
        assert_eq!(
            sum.missing(),
            Vec::<&str>::new(),
            "the simulation never met these"
        );
    }
}

/// Runs one seed after the other, from `first` on, until this number of jobs has come and gone,
/// each run on a thread of its own, as many at a time as there are processors.
fn simulate(first: u64, wanted: u64) -> Coverage {
    let (next, lives) = (AtomicU64::new(first), AtomicU64::new(0));
    let run_some = || {
        let mut sum = Coverage::default();
        while lives.load(Ordering::Relaxed) < wanted {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            match attempt(seed, &Trace::new(Detail::Nothing)) {
                Ok(coverage) => {
                    lives.fetch_add(coverage.lives, Ordering::Relaxed);
                    sum.add(&coverage);
                }
                Err(problem) => {
                    lives.store(wanted, Ordering::Relaxed);
                    fail(seed, &problem);
                }
            }
        }
        sum
    };
    let mut sum = Coverage::default();
    thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, Into::into);
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(run_some)).collect();
        for worker in workers {
            match worker.join() {
                Ok(coverage) => sum.add(&coverage),
                Err(problem) => panic::resume_unwind(problem),
            }
        }
    });
    sum
}

fn attempt(seed: u64, trace: &Trace) -> Result<Coverage, String> {
    let run = || scenario::run(seed, trace.clone());
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_default()
    })
}

/// Runs the seed again to see what led to its end.
fn fail(seed: u64, problem: &str) -> ! {
    let trace = Trace::new(Detail::Last(LINES));
    let again = attempt(seed, &trace).err();
    assert_eq!(
        again.as_deref(),
        Some(problem),
        "a seed does the same again"
    );
    panic!(
        "seed {seed}: {problem}\nthe last steps:\n{}\nall of them: \
         IPU_OPERATOR_SIMULATION_SEED={seed} cargo test --workspace --lib simulation -- --nocapture",
        trace.text()
    );
}

#[test]
fn a_seed_of_the_simulation_runs_the_same_way_twice() {
    let hashes = [(); 2].map(|()| {
        let trace = Trace::new(Detail::Last(1));
        scenario::run(4, trace.clone());
        trace.hash()
    });
    assert_eq!(hashes[0], hashes[1]);
}

/// A world with one job that wants one partition.
fn world_of_one() -> World {
    let mut world = World::calm(1, &[8, 8], Trace::new(Detail::Nothing));
    world.add_job(Job::new("mnist".to_owned(), String::new(), 4, 1));
    world
}

/// A process dies at every step of the plain course of events, one after the other.
#[test]
fn a_crash_after_any_single_step_is_healed() {
    let mut deaths = 0;
    for call_fault in CallFault::ALL {
        for after in 0..40 {
            let mut world = world_of_one();
            world.death = Some(Death { after, call_fault });
            world.run_until(60_000);
            world.settle();
            assert_eq!(world.ours().len(), 1, "{call_fault:?} at step {after}");
            world.end();
            deaths += u32::from(world.death.is_none());
        }
    }
    assert!(
        deaths > 60,
        "only {deaths} of these runs came to the step at which to die"
    );
}

/// One job whose Pod runs without end goes on with it, whatever the next release calls itself.
fn goes_on_under(identity: Identity) {
    let mut world = world_of_one();
    // The job has come; its Pod has no end of itself from now on.
    world.run_until(1);
    world.is_over = true;
    world.run_until(120_000);
    let state = |world: &World| {
        let ours: Vec<String> = world
            .ours()
            .iter()
            .map(|(_, id)| (*id).to_owned())
            .collect();
        (ours, world.pods.keys().copied().collect::<Vec<_>>())
    };
    let before = state(&world);
    assert_eq!((before.0.len(), before.1.len()), (1, 1), "{before:?}");
    world.settings.identity = identity;
    world.kill(0, 1_000);
    world.settle();
    assert_eq!(state(&world), before);
    world.end();
}

#[test]
fn a_release_goes_on_with_what_another_one_has_made() {
    goes_on_under(sim_adapter::identity(0, "another-release"));
}

#[test]
fn a_cluster_that_was_restored_elsewhere_goes_on_with_what_it_had() {
    goes_on_under(sim_adapter::identity(1, "release"));
}

/// The case that the demo shows with SIGKILL: the controller has the partition, and no object
/// records it.
#[test]
fn a_partition_that_was_formed_and_not_noted_is_taken() {
    let mut world = world_of_one();
    let mut now = 0;
    while world.ours().is_empty() {
        now += 1;
        world.run_until(now);
    }
    let id = world.ours()[0].1.to_owned();
    world.kill(0, 1_000);
    world.settle();
    assert_eq!(
        world.ours().iter().map(|(_, id)| *id).collect::<Vec<_>>(),
        [id]
    );
}
