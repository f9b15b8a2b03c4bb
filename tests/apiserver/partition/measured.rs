//! Compares the replay with a real run: some of the real jobs in compressed time on a real API
//! server, a real vipu-proxy and simulated V-IPU controllers, with two policies in turn. The replay
//! must predict the allocation.
//!
//! One second of the trace is one millisecond. The operator and the V-IPU controllers take some
//! tenths of a second for each partition, and more on a slow machine. The replay does not contain
//! these times, so the test measures them in a run of other jobs before, and adds them to the
//! durations of the replayed jobs. From the predicted run the replay gets nothing. Durations are at
//! least two seconds, so that these times, and the rounding of creation times to seconds, are small
//! in comparison. They are at most twenty seconds, so that enough jobs end in the test.

mod holds;
mod users;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use cluster::wait::{Seen, until};
use ipu_api::guest::placement::PlacementRequest;
use ipu_api::ipupolicy::{Hook, PolicyPhase};
use ipu_evaluation::replay::{self, Outcome};
use ipu_evaluation::{Controller, Decided, Job, Settings, jobs};
use ipu_guest_host::policy_request::{Answer, PolicyRequest};
use ipu_guest_host::{Budget, Limits, OfflineGuest};
use ipu_placement::decision_check::check_decision;
use ipu_placement::serial_walk::serial_walk;
use kube::api::{DeleteParams, ListParams};
use release::guests::{self, checkout};
use tokio::sync::Notify;
use vipu_simulator::Simulator;
use vipu_simulator::pod::Timings;

use self::holds::{Hold, allocation, handover, holds, overhead};
use self::users::Observed;
use super::fixture::Fixture;
use super::policy;
use crate::extent::full_or;

/// IPUs of the V-IPU controllers, in the order of the list.
const SIZES: [u32; 3] = [64, 32, 32];

/// A part of the real jobs.
struct Part {
    /// Index of the first job.
    first: usize,
    /// Distance to the next one.
    step: usize,
    /// Offered load in percent.
    load: u32,
}

/// The jobs in full: 306 over 95 seconds. They request more than the 128 IPUs at once, so one in
/// three waits, on a fast machine too.
const FULL: Part = Part {
    first: 0,
    step: 50,
    load: 70,
};

/// The jobs otherwise: 118 over 12 seconds, likewise.
const OTHERWISE: Part = Part {
    first: 0,
    step: 130,
    load: 200,
};

/// The jobs that run before: 117 over 8 seconds, likewise. None of them runs again.
const BEFORE: Part = Part {
    first: 64,
    step: 130,
    load: 300,
};

/// Durations in milliseconds.
const DURATIONS: (u64, u64) = (2_000, 20_000);

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

/// The jobs of a part. Their times are in milliseconds.
fn jobs_of(part: &Part, controllers: &[Controller]) -> Vec<Job> {
    let file = checkout().join("tests/evaluation/msr-jobs.csv");
    let all = jobs::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
    let listed = all.into_iter().skip(part.first).step_by(part.step);
    let mut jobs: Vec<Job> = listed.filter(|job| job.fits(controllers)).collect();
    let begin = jobs[0].arrival;
    let (shortest, longest) = DURATIONS;
    for job in &mut jobs {
        job.arrival -= begin;
        job.duration = job.duration.clamp(shortest, longest);
    }
    jobs::at_load(&mut jobs, controllers, part.load);
    jobs
}

/// The end of a run: the arrival of the last job.
fn end(jobs: &[Job]) -> Duration {
    Duration::from_millis(jobs.last().unwrap().arrival)
}

/// The times that the operator takes, according to a run.
struct Delays {
    /// Life of a partition beyond the duration of its job.
    overhead: Duration,
    /// Time for which IPUs are free before the next waiting request gets them.
    handover: Duration,
}

impl Delays {
    /// Runs other jobs.
    async fn measure(fixture: &Fixture, controllers: &[Controller]) -> Self {
        let jobs = jobs_of(&BEFORE, controllers);
        let run = Run::of(fixture, &jobs, &Notify::new()).await;
        let delays = Self {
            overhead: overhead(&run.holds, &jobs, end(&jobs)),
            handover: handover(&run.holds, &run.waited()),
        };
        assert!(delays.handover > Duration::ZERO, "some jobs waited");
        delays
    }

    /// Replays the jobs as they are to arrive. The policy changes with the arrival of the middle
    /// one. Returns the resulting holds.
    fn predict(&self, jobs: &[Job], controllers: &[Controller], module: &Path) -> Vec<Hold> {
        let replayed = jobs.iter().map(|job| Job {
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
        let changed = jobs[jobs.len() / 2].arrival;
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
                check_decision(
                    decision,
                    &asked.request,
                    &asked.controllers,
                    &asked.attempts,
                )
                .unwrap()
            };
            Decided {
                decision,
                overruled: None,
            }
        };
        let outcomes = replay::replay(&replayed, controllers, &settings, place).outcomes;
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

/// A run on the API server.
struct Run {
    observed: Observed,
    holds: Vec<Hold>,
}

impl Run {
    /// Runs these jobs until the last one arrives, and releases all.
    async fn of(fixture: &Fixture, jobs: &[Job], half: &Notify) -> Self {
        let last = |pod: &Simulator| pod.server.calls(0).last().map_or(0, |call| call.number);
        let before: Vec<u64> = fixture.pods.iter().map(last).collect();
        let observed = users::run(fixture, jobs, half).await;
        clean_up(fixture).await;
        let pods = fixture.pods.iter().zip(before);
        let calls = pods.map(|(pod, before)| pod.server.calls(before));
        let calls: Vec<_> = calls.collect();
        Self {
            holds: holds(&calls, &observed, jobs),
            observed,
        }
    }

    /// The holds of the requests that waited.
    fn waited(&self) -> Vec<&Hold> {
        let waited = |hold: &&Hold| {
            let requested = self.observed.requested[hold.job];
            hold.from.saturating_sub(requested) > WAITED
        };
        self.holds.iter().filter(waited).collect()
    }

    /// Returns the number of jobs that a policy has placed.
    fn decided(&self, policy: &str) -> usize {
        self.observed.decided.get(policy).map_or(0, BTreeSet::len)
    }
}

/// Converts a time of the run to a time of the replay, whose second is a millisecond.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

/// Applies the second policy when half of the requests have been made, and waits until it is
/// active.
async fn change_policy(fixture: &Fixture, module: &Path, half: &Notify) {
    let bytes = std::fs::read(module).unwrap();
    let digest = policy::module(fixture, MODULE, bytes).await;
    half.notified().await;
    let (name, module) = ((POLICY, OWNERS), (MODULE, digest.as_str()));
    policy::once_for(fixture, name, module, PolicyPhase::Active).await;
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
    let jobs = jobs_of(&full_or(FULL, OTHERWISE), &controllers);
    assert!(jobs.len() > 40, "{}", jobs.len());
    let delays = Delays::measure(&fixture, &controllers).await;
    let predicted = delays.predict(&jobs, &controllers, &module);

    let half = Notify::new();
    let (run, ()) = tokio::join!(
        Run::of(&fixture, &jobs, &half),
        change_policy(&fixture, &module, &half),
    );
    fixture.kill_proxy().await;

    let capacity: u32 = SIZES.iter().sum();
    let [seen, predicted] =
        [&run.holds, &predicted].map(|holds| allocation(holds, end(&jobs), capacity));
    let [waited, serial, policy] = [
        run.waited().len(),
        run.decided("built-in"),
        run.decided(POLICY),
    ];
    let summary = format!(
        "allocation {seen:.4}, predicted {predicted:.4}; {waited} of {} requests waited; {serial} placed by the serial \
         walk, {policy} by the policy; {:?} of overhead and {:?} between two holds",
        jobs.len(),
        delays.overhead,
        delays.handover,
    );
    println!("{summary}");
    assert!(
        (seen - predicted).abs() <= ERROR_MAX * predicted,
        "{summary}"
    );
    // The test is meaningful only if requests waited: without waiting requests, any replay is
    // right.
    let few = jobs.len() / 8;
    assert!(seen > 0.5 && waited > few, "{summary}");
    assert!(serial > few && policy > few, "{summary}");
}
