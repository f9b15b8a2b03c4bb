//! Compares the replay with a real run: some of the real jobs in compressed time on a real API server, a real
//! vipu-proxy and simulated V-IPU controllers, with two policies in turn. The replay must predict the allocation.
//!
//! One second of the trace is one millisecond. The operator and the V-IPU controllers take some tenths of a second for
//! each partition, and more on a slow machine. The replay does not contain these times, so the test measures them in
//! this run, and adds them to the durations of the replayed jobs. The prediction then concerns the order of the queue,
//! the placements, and the time at which each request is served. Durations are at least two seconds, so that these
//! times, and the rounding of creation times to seconds, are small in comparison. They are at most twenty seconds, so
//! that enough jobs end in the test.

mod holds;
mod users;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use cluster::wait::{Seen, until};
use ipu_api::ipupolicy::{IPUPolicy, PolicyPhase};
use ipu_evaluation::replay::Outcome;
use ipu_evaluation::{Controller, Decided, Job, Settings, jobs, replay};
use ipu_guest_host::model::Hook;
use ipu_guest_host::policy_request::{Answer, PlacementRequest, PolicyRequest};
use ipu_guest_host::{Budget, Limits, OfflineGuest, serial_walk};
use kube::api::{Api, DeleteParams, ListParams};
use release::guests::{self, checkout};
use tokio::sync::Notify;
use vipu_simulator::pod::Timings;

use self::holds::{Hold, allocation, handover, holds, overhead};
use self::users::Observed;
use super::fixture::Fixture;
use super::policy;

/// IPUs of the V-IPU controllers, in the order of the list.
const SIZES: [u32; 3] = [64, 32, 32];

/// One in this number of real jobs runs: 306, over 100 seconds.
const STEP: usize = 50;

/// Durations in milliseconds.
const DURATIONS: (u64, u64) = (2_000, 20_000);

/// Offered load in percent. Most of the jobs arrive in the first half of the time, and two of three wait. With more
/// load, a hundred requests would wait at the same time and keep a slow machine busy.
const LOAD: u32 = 70;

/// Waiting time in seconds after which capacity is reserved.
const BACKFILL_LIMIT: u64 = 30;

/// The prefix of the owners' names.
const OWNERS: &str = "trace-";

/// The policy that follows the serial walk.
const POLICY: &str = "compact";

/// Its module.
const MODULE: &str = "fragmentation.wasm";

/// Fuel of a call in the replay.
const FUEL: u64 = 1_000_000_000;

/// A request counts as waiting if it was served this long after its creation.
const WAITED: Duration = Duration::from_secs(1);

/// The largest relative error of the prediction.
const ERROR_MAX: f64 = 0.05;

/// Time limit for the end of all partitions on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// Sets the time that the V-IPU controllers take for each operation.
fn set_timings(fixture: &Fixture) {
    let timings = Timings {
        forming_ms: 300,
        removing_ms: 100,
        resetting_ms: 100,
    };
    for pod in &fixture.pods {
        pod.server.with(|world, _| world.pod.timings = timings);
    }
}

/// The V-IPU controllers, for the replay.
fn controllers(fixture: &Fixture) -> Vec<Controller> {
    let pods = fixture.pods.iter().zip(SIZES);
    let controllers = pods.map(|(pod, ipus)| Controller {
        name: pod.address.to_string(),
        ipus,
    });
    controllers.collect()
}

/// A part of the real jobs, whose times are in milliseconds.
fn part(controllers: &[Controller]) -> Vec<Job> {
    let file = checkout().join("tests/evaluation/msr-jobs.csv");
    let all = jobs::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut part: Vec<Job> = all.into_iter().step_by(STEP).collect();
    part.retain(|job| job.fits(controllers));
    let (shortest, longest) = DURATIONS;
    for job in &mut part {
        job.duration = job.duration.clamp(shortest, longest);
    }
    jobs::at_load(&mut part, controllers, LOAD);
    part
}

/// The properties of the run that the replay needs.
struct Run<'a> {
    jobs: &'a [Job],
    controllers: &'a [Controller],
    observed: &'a Observed,
    /// The time from which the second policy was active.
    changed: Duration,
    /// Life of a partition beyond the duration of its job.
    overhead: Duration,
    /// Time for which IPUs are free before the next waiting request gets them.
    handover: Duration,
}

impl Run<'_> {
    /// Replays the jobs as they arrived in the run. Returns the resulting holds.
    fn predicted(&self, module: &Path) -> Vec<Hold> {
        let requested = self.observed.requested.iter();
        let replayed = self.jobs.iter().zip(requested).map(|(job, arrival)| Job {
            arrival: millis(*arrival),
            duration: job.duration + millis(self.overhead + self.handover),
            ..job.clone()
        });
        let replayed: Vec<Job> = replayed.collect();
        let settings = Settings {
            backfill_limit: Duration::from_secs(BACKFILL_LIMIT * 1_000),
            ..Settings::default()
        };
        let limits = Limits::for_authoring();
        let guest = OfflineGuest::open(module, Some(Hook::Placement), limits, Budget::Fuel(FUEL));
        let guest = guest.unwrap();
        let call = guest.caller("{}").unwrap();
        let changed = millis(self.changed);
        let place = |now: u64, asked: PlacementRequest| {
            let decision = if now < changed {
                serial_walk(&asked.request, &asked.controllers, &asked.attempts)
            } else {
                let answer = call(&PolicyRequest::Placement(asked.clone()))
                    .answer
                    .unwrap();
                let Answer::Decision(decision) = answer else {
                    unreachable!("the guest is one for placement")
                };
                asked.check_decision(decision).unwrap()
            };
            Decided {
                decision,
                overruled: None,
            }
        };
        let outcomes = replay(&replayed, self.controllers, &settings, place).outcomes;
        let held = outcomes.iter().zip(&replayed).enumerate();
        let held = held.filter_map(|(job, (outcome, replayed))| {
            let &Outcome::Ran { started } = outcome else {
                return None;
            };
            let from = Duration::from_millis(started);
            let end = from + Duration::from_millis(replayed.duration);
            let to = end.saturating_sub(self.handover);
            Some(Hold {
                job,
                pod: 0,
                ipus: replayed.ipus,
                from,
                to,
            })
        });
        held.collect()
    }
}

/// Converts a time of the run to a time of the replay, whose second is a millisecond.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

/// Applies the second policy when half of the requests have been made. Returns the time from which
/// it was active.
async fn change_policy(fixture: &Fixture, module: &Path, half: &Notify) -> jiff::Timestamp {
    let bytes = std::fs::read(module).unwrap();
    let digest = policy::module(fixture, MODULE, bytes).await;
    half.notified().await;
    let (name, module) = ((POLICY, OWNERS), (MODULE, digest.as_str()));
    policy::once_for(fixture, name, module, PolicyPhase::Active).await;
    jiff::Timestamp::now()
}

/// Deletes all IPUPartitions, and waits until they and their partitions are gone.
async fn clean_up(fixture: &Fixture) {
    let (partitions, params) = (fixture.partitions(), DeleteParams::default());
    let list = ListParams::default();
    partitions.delete_collection(&params, &list).await.unwrap();
    until("every IPUPartition to go", PATIENCE, async || {
        let left = partitions.list(&list).await?;
        Ok::<_, kube::Error>(Seen::when(left.items.len(), |left| *left == 0))
    })
    .await
    .unwrap();
    let policies = Api::<IPUPolicy>::all(fixture.client.clone());
    policies.delete(POLICY, &params).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replay_predicts_the_allocation_of_real_jobs_under_two_policies() {
    let built = tokio::task::spawn_blocking(|| guests::build().unwrap());
    let module = built.await.unwrap().join(MODULE);
    let mut fixture = Fixture::without_proxy(&SIZES).await;
    fixture.backfill_limit = BACKFILL_LIMIT;
    set_timings(&fixture);
    fixture.start_proxy().await;
    let _leader = policy::rollout_leader(&fixture).await;
    let controllers = controllers(&fixture);
    let jobs = part(&controllers);
    assert!(jobs.len() > 250, "{}", jobs.len());

    let half = Notify::new();
    let (observed, changed) = tokio::join!(
        users::run(&fixture, &jobs, &half),
        change_policy(&fixture, &module, &half),
    );
    clean_up(&fixture).await;
    fixture.kill_proxy().await;

    let calls = fixture.pods.iter().map(|pod| pod.server.calls(0));
    let calls: Vec<_> = calls.collect();
    let holds = holds(&calls, &observed, &jobs);
    let end = *observed.requested.last().unwrap();
    let waited: Vec<&Hold> = holds
        .iter()
        .filter(|hold| hold.from.saturating_sub(observed.requested[hold.job]) > WAITED)
        .collect();
    let run = Run {
        jobs: &jobs,
        controllers: &controllers,
        observed: &observed,
        changed: observed.since_begin(changed),
        overhead: overhead(&holds, &jobs, end),
        handover: handover(&holds, &waited),
    };
    let capacity: u32 = SIZES.iter().sum();
    let [seen, predicted] =
        [&holds, &run.predicted(&module)].map(|holds| allocation(holds, end, capacity));
    let decided = |policy: &str| observed.decided.get(policy).map_or(0, BTreeSet::len);
    let summary = format!(
        "allocation {seen:.4}, predicted {predicted:.4}; {} of {} requests waited; {} placed by the serial walk, {} by \
         the policy, from {:?} of {end:?} on; {:?} of overhead and {:?} between two holds",
        waited.len(),
        jobs.len(),
        decided("built-in"),
        decided(POLICY),
        run.changed,
        run.overhead,
        run.handover,
    );
    println!("{summary}");
    assert!(
        (seen - predicted).abs() <= ERROR_MAX * predicted,
        "{summary}"
    );
    // The test is meaningful only if requests waited: without waiting requests, any replay is
    // right.
    assert!(seen > 0.5 && waited.len() > 40, "{summary}");
    assert!(
        decided("built-in") > 40 && decided(POLICY) > 40,
        "{summary}"
    );
}
