//! The operator is killed at each step of a queued job, and started again: the job has its quota
//! and one partition, and neither at the end.

use std::collections::{BTreeMap, BTreeSet};

use cluster::wait::{Seen, eventually};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use kube::Client;
use kube::api::{Api, DeleteParams};
use kube::runtime::wait::await_condition;
use tests::kueue::workload::of_job;
use vipu_simulator::faults::Method;
use vipu_simulator::pod::Stage;

use super::fixture::{Fixture, NAMESPACE, queue_with};
use crate::cut_off::{Writes, uids};

/// Kills the operator, runs an action while it is down, and starts it again.
async fn killed(fixture: &mut Fixture, step: &str, meanwhile: impl AsyncFnOnce(&Fixture)) {
    println!("killed when {step}");
    fixture.kill_operator();
    meanwhile(&*fixture).await;
    fixture.start_operator().await;
}

/// Waits until the V-IPU controller has a partition in this state.
async fn once_partition(fixture: &Fixture, what: &str, is_so: fn(Stage) -> bool) {
    eventually(what, async || {
        let server = &fixture.installation.simulator.server;
        let stages: Vec<Stage> = server.with(|world, now| {
            let partitions = world.pod.partitions(now);
            partitions.map(|partition| partition.stage).collect()
        });
        Seen::when(stages, |stages| {
            stages.len() == 1 && stages.iter().all(|stage| is_so(*stage))
        })
    })
    .await;
}

/// The job is admitted, its partition forms, and it starts. The operator is killed before each of
/// these steps.
async fn start(fixture: &mut Fixture, worker: &str) {
    killed(fixture, "the job is queued", async |fixture| {
        fixture.hold(true, false);
        fixture.apply(&queue_with("None")).await;
        fixture
            .once("one", "is admitted", |one| one.is("Admitted"))
            .await;
        assert_eq!(fixture.taken(), 0);
    })
    .await;
    once_partition(fixture, "its partition forms", |stage| {
        matches!(stage, Stage::Creating(_))
    })
    .await;

    killed(fixture, "its partition forms", async |fixture| {
        fixture.hold(false, false);
    })
    .await;
    eventually("its Pod is made", async || {
        fixture.installation.pods().get_opt(worker).await.unwrap()
    })
    .await;

    killed(fixture, "its Pod waits", async |fixture| {
        fixture.installation.runs(worker).await;
    })
    .await;
    fixture.once_running("one").await;
    fixture
        .once("one", "is ready", |one| one.is("PodsReady"))
        .await;
}

/// Kueue evicts the job, and its partition is removed. The operator is killed before each of these
/// steps.
async fn evict(fixture: &mut Fixture) {
    killed(fixture, "it runs", async |fixture| {
        fixture.set_active("one", false).await;
        fixture
            .once("one", "is evicted", |one| one.is("Evicted"))
            .await;
        assert!(
            fixture
                .once("one", "is there", |_| true)
                .await
                .holds_quota()
        );
        assert_eq!(fixture.taken(), 4);
        fixture.hold(false, true);
    })
    .await;
    once_partition(fixture, "its partition is removed", |stage| {
        matches!(stage, Stage::Removing(_))
    })
    .await;
    let leaving = fixture.once("one", "is there", |_| true).await;
    assert!(leaving.holds_quota(), "its IPUs are not free yet");

    killed(fixture, "its partition leaves", async |fixture| {
        fixture.hold(false, false);
    })
    .await;
    fixture.once_released("one").await;
}

/// Kueue admits the job again, and its program ends. The operator is killed before each of these
/// steps.
async fn complete(fixture: &mut Fixture, worker: &str) {
    killed(fixture, "it has released all", async |fixture| {
        fixture.set_active("one", true).await;
        fixture
            .once("one", "is admitted again", |one| one.is("Admitted"))
            .await;
    })
    .await;
    fixture.installation.runs(worker).await;
    fixture.once_running("one").await;

    killed(fixture, "its program ends", async |fixture| {
        fixture.installation.ends(worker).await;
    })
    .await;
    fixture.installation.once("one", JobState::Completed).await;
    fixture
        .once("one", "is finished", |one| one.is("Finished"))
        .await;
}

/// Returns the ids that the first V-IPU controller was requested to create.
fn requested(fixture: &Fixture) -> BTreeSet<String> {
    let calls = fixture.installation.simulator.server.calls(0).into_iter();
    let creates = calls.filter(|call| call.method == Method::CreatePartition);
    creates.map(|call| call.partition).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_operator_is_killed_a_job_has_quota_and_a_partition_together() {
    let mut fixture = Fixture::with_queue(queue_with("Hold")).await;
    fixture.submit("one", 4).await;
    fixture.once("one", "is made", |_| true).await;
    let worker = naming::worker("one", 0);

    start(&mut fixture, &worker).await;
    evict(&mut fixture).await;
    complete(&mut fixture, &worker).await;
    assert_eq!(fixture.most_taken(), 4);
    let asked = requested(&fixture);
    assert_eq!(asked.len(), 2, "one for each admission: {asked:?}");

    killed(&mut fixture, "the job has ended", async |_| {}).await;
    fixture.delete("one").await;
    fixture.once_gone("one").await;
    fixture.once_reserved(0).await;
}

/// The user deletes a job once it has completed, however many jobs are before it, and waits until
/// nothing of it is left.
async fn live(client: Client, job: String) {
    let jobs: Api<IPUJob> = Api::namespaced(client.clone(), NAMESPACE);
    let is_completed = |job: Option<&IPUJob>| {
        let status = job.and_then(|job| job.status.as_ref());
        status.is_some_and(|status| status.launcher_status == JobState::Completed)
    };
    let completed = await_condition(jobs.clone(), &job, is_completed);
    completed.await.unwrap();
    jobs.delete(&job, &DeleteParams::default()).await.unwrap();
    eventually(&format!("nothing of {job} is left"), async || {
        let found = jobs.get_opt(&job).await.unwrap();
        let workloads = of_job(&client, NAMESPACE, &job).await.unwrap();
        Seen::when((found.is_some(), workloads.len()), |left| {
            *left == (false, 0)
        })
    })
    .await;
}

/// The number of writes about a job from its submission until it is gone.
async fn writes_of_a_life(fixture: &mut Fixture) -> usize {
    let all = Writes::limited([("whole", None)]);
    fixture.restart_with(&all).await;
    fixture.submit("whole", 4).await;
    live(fixture.installation.client.clone(), "whole".to_owned()).await;
    all.sent("whole")
}

/// The jobs wait for the quota of one of them, so that Kueue admits the next one as soon as it
/// takes the quota for free.
#[tokio::test(flavor = "multi_thread")]
async fn operator_killed_before_any_of_its_writes_keeps_each_job_within_the_quota() {
    let mut fixture = Fixture::with_quota(4).await;
    fixture.run_pods(true);
    let count = writes_of_a_life(&mut fixture).await;
    assert!(count > 8, "{count} writes");
    let names = (0..count).map(|number| (format!("cut-{number:02}"), number));
    let mut left: BTreeMap<String, usize> = names.collect();
    let mut processes = Vec::new();
    let mut lives = FuturesUnordered::new();
    loop {
        let limits = left
            .iter()
            .map(|(job, number)| (job.as_str(), Some(*number)));
        let writes = Writes::limited(limits);
        fixture.restart_with(&writes).await;
        if left.len() == count {
            for job in left.keys() {
                fixture.submit(job, 4).await;
                lives.push(live(fixture.installation.client.clone(), job.clone()));
            }
        }
        let cut_off = tokio::select! {
            job = writes.once_any_cut_off() => Some(job),
            () = lives.by_ref().collect() => None,
        };
        processes.push(writes);
        let Some(job) = cut_off else {
            break;
        };
        println!("killed before write {} about {job}", left[&job]);
        left.remove(&job);
    }
    assert!(left.len() < count, "{left:?}");
    let created: Vec<_> = processes.iter().flat_map(Writes::created).collect();
    for kind in ["workloads", "ipupartitions", "pods"] {
        let made = uids(&created, kind);
        assert_eq!(made.len(), count, "{kind}: {made:?}");
        for (name, made) in made {
            assert_eq!(made.len(), 1, "{kind} {name}: {made:?}");
        }
    }
    assert_eq!(fixture.most_taken(), 4);
}
