//! Teams whose ClusterQueues are in one cohort: they lend and reclaim quota, and fair sharing
//! divides borrowed IPUs by the weights of the teams. On the V-IPU controllers the cohort never has
//! more IPUs than its quota.

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::JobState;
use kube::api::ListParams;
use serde_json::{Value, json};
use tests::kueue::objects::{QUEUE_LABEL, cluster_queue, local_queue, resource_flavor};
use tests::kueue::workload::of_job;
use vipu_simulator::pod::Stage;

use super::fixture::{Fixture, NAMESPACE, QUEUE, job};

/// Name of the ClusterQueue of the second team, and of its LocalQueue. The first team has `QUEUE`.
const OTHER: &str = "other";

/// Name of the flavor of the first V-IPU controller, whose operations a test can delay.
const FIRST: &str = "first";

/// Quota of the cohort in IPUs.
const SHARED: u32 = 16;

/// Jobs of the first team, with 4 IPUs each: together they use all of the cohort.
const BORROWERS: [&str; 4] = ["one", "two", "three", "four"];

/// A ClusterQueue of the cohort.
fn in_cohort(name: &str, ipus: u32) -> Value {
    let mut queue = cluster_queue(name, &[(FIRST, ipus)]);
    queue["spec"]["cohortName"] = json!("ipus");
    queue["spec"]["preemption"] = json!({"reclaimWithinCohort": "Any"});
    queue
}

/// Starts everything with the ClusterQueues of both teams, and changes to the Configuration of
/// Kueue's manager.
async fn teams([team, other]: [Value; 2], changes: &Value) -> Fixture {
    let mut fixture = Fixture::with_configuration(team, changes).await;
    fixture.run_pods(false);
    for object in [
        resource_flavor(FIRST, &[("ipunode", "pod1")]),
        other,
        local_queue(NAMESPACE, OTHER, OTHER),
    ] {
        fixture.apply(&object).await;
    }
    fixture
}

/// A team submits a job of this number of IPUs.
async fn submit(fixture: &Fixture, team: &str, name: &str, ipus: u32) {
    let mut job = job(name, ipus);
    job["metadata"]["labels"][QUEUE_LABEL] = json!(team);
    fixture.installation.submit(&job).await;
}

/// The first team uses all of the cohort.
async fn use_all(fixture: &Fixture) {
    for name in BORROWERS {
        submit(fixture, QUEUE, name, 4).await;
        fixture.once_running(name).await;
    }
    assert_eq!(fixture.taken(), SHARED);
}

/// Waits until Kueue has preempted this number of jobs of the first team for this reason. Returns
/// their names.
async fn once_preempted(fixture: &Fixture, count: usize, reason: &str) -> Vec<&'static str> {
    eventually(
        &format!("{count} jobs are preempted: {reason}"),
        async || {
            let mut preempted = Vec::new();
            for name in BORROWERS {
                let found = of_job(&fixture.installation.client, NAMESPACE, name).await;
                let mut found = found.unwrap().into_iter();
                if found.any(|one| one.is("Evicted") && one.reason("Preempted") == reason) {
                    preempted.push(name);
                }
            }
            Seen::when(preempted, |preempted| preempted.len() == count)
        },
    )
    .await
}

/// Returns the number of running jobs of a team.
async fn running(fixture: &Fixture, team: &str) -> usize {
    let of_team = ListParams::default().labels(&format!("{QUEUE_LABEL}={team}"));
    let jobs = fixture.installation.jobs().list(&of_team).await.unwrap();
    let states = jobs.into_iter().map(|job| job.status.unwrap_or_default());
    states
        .filter(|status| status.launcher_status == JobState::Running)
        .count()
}

/// Waits until these numbers of jobs of both teams run.
async fn once_divided(fixture: &Fixture, expected: [usize; 2]) {
    eventually(&format!("{expected:?} jobs of the teams run"), async || {
        let found = [running(fixture, QUEUE).await, running(fixture, OTHER).await];
        Seen::when(found, |found| *found == expected)
    })
    .await;
}

/// Waits until a partition is being removed.
async fn once_removing(fixture: &Fixture) {
    eventually("a partition is being removed", async || {
        let server = &fixture.installation.simulator.server;
        let stages: Vec<Stage> = server.with(|world, now| {
            let partitions = world.pod.partitions(now);
            partitions.map(|partition| partition.stage).collect()
        });
        Seen::when(stages, |stages| {
            let mut stages = stages.iter();
            stages.any(|stage| matches!(stage, Stage::Removing(_)))
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_team_borrows_idle_quota_and_returns_the_ipus_before_their_owner_gets_them() {
    let queues = [QUEUE, OTHER].map(|team| in_cohort(team, SHARED / 2));
    let fixture = teams(queues, &json!({})).await;
    use_all(&fixture).await;

    fixture.hold(false, true);
    submit(&fixture, OTHER, "owner", 8).await;
    let preempted = once_preempted(&fixture, 2, "InCohortReclamation").await;
    once_removing(&fixture).await;
    // The borrowed IPUs are not free yet.
    let owner = fixture.once("owner", "is made", |_| true).await;
    assert!(!owner.is("QuotaReserved"), "{owner:?}");
    let partitions = fixture.installation.partitions().await;
    assert!(
        partitions.iter().all(|(job, _)| job != "owner"),
        "{partitions:?}"
    );
    assert_eq!(fixture.taken(), SHARED);

    fixture.hold(false, false);
    fixture.once_running("owner").await;
    for name in &preempted {
        fixture.once_released(name).await;
        fixture.installation.once(name, JobState::Suspended).await;
    }
    once_divided(&fixture, [2, 1]).await;
    assert_eq!(fixture.taken(), SHARED);

    // The quota is idle again, and is lent again.
    fixture.end("owner").await;
    once_divided(&fixture, [BORROWERS.len(), 0]).await;
    for name in BORROWERS {
        fixture.end(name).await;
    }
    eventually("no IPU is taken", async || {
        Seen::when(fixture.taken(), |taken| *taken == 0)
    })
    .await;
    assert_eq!(fixture.most_taken(), SHARED);
}

#[tokio::test(flavor = "multi_thread")]
async fn fair_sharing_divides_borrowed_ipus_by_the_weights_of_the_teams() {
    let queues = [(QUEUE, "1"), (OTHER, "3")].map(|(team, weight)| {
        let mut queue = in_cohort(team, 0);
        queue["spec"]["fairSharing"] = json!({"weight": weight});
        queue
    });
    let strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"];
    let changes = json!({"fairSharing": {"preemptionStrategies": strategies}});
    let fixture = teams(queues, &changes).await;
    // A ClusterQueue without jobs lends all of its quota.
    fixture.apply(&in_cohort("lender", SHARED)).await;
    use_all(&fixture).await;

    // The team of weight 3 gets three quarters.
    let heavy = ["heavy-1", "heavy-2", "heavy-3"];
    for name in heavy {
        submit(&fixture, OTHER, name, 4).await;
        fixture.once_running(name).await;
    }
    once_preempted(&fixture, 3, "InCohortFairSharing").await;
    submit(&fixture, OTHER, "heavy-4", 4).await;
    let waiting = fixture.once_waiting("heavy-4").await;
    let message = waiting.message("QuotaReserved");
    assert!(!message.contains("Pending the preemption"), "{message}");
    once_divided(&fixture, [1, 3]).await;
    assert_eq!(fixture.taken(), SHARED);

    // Quota that a team does not need goes to the other team, regardless of its weight.
    for name in heavy {
        fixture.end(name).await;
    }
    once_divided(&fixture, [3, 1]).await;
    assert_eq!(fixture.most_taken(), SHARED);
}
