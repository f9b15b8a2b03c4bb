//! Two controllers: one reconciles jobs, and the other one takes over when the leader is lost or
//! ends.

use std::path::PathBuf;
use std::time::Duration;

use cluster::wait::{Seen, eventually};
use ipu_jobs::delivery::Mountable;
use ipu_operator::controller::jobs::{self, Reconcilers};
use ipu_operator::exposition::Metrics;
use ipu_runtime::dry_run::DryRuns;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::job::single;
use crate::job_fixture::{JobFixture, settings};
use crate::webhook::fixture::release;

/// Time limit until the other one takes over from a lost leader.
const TTL: Duration = Duration::from_secs(2);

/// Starts a controller of this name, without webhooks.
fn start(fixture: &JobFixture, name: &str, stop: &CancellationToken) -> JoinHandle<()> {
    let (client, release) = (fixture.client.clone(), release(PathBuf::new(), name));
    let stop = stop.clone();
    tokio::spawn(async move {
        let metrics = Metrics::default();
        let reconcilers = Reconcilers {
            jobs: &settings(),
            native_pods: None,
            kueue: None,
            agent_probes: None,
            mountable: Mountable::default(),
            dry_runs: DryRuns::default(),
            metrics: &metrics,
        };
        jobs::run_as_leader(&client, &release, &reconcilers, TTL, &stop).await;
    })
}

/// Waits until this one leads.
async fn leads(fixture: &JobFixture, name: &str) {
    let leases = Api::<Lease>::namespaced(fixture.client.clone(), "default");
    eventually(&format!("{name} leads"), async || {
        let lease = leases.get_opt("ipu-operator-controller-manager").await;
        let holder = lease.unwrap().and_then(|lease| lease.spec?.holder_identity);
        Seen::when(holder, |holder| holder.as_deref() == Some(name))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_continue_when_the_leader_is_lost_and_when_it_stops() {
    let fixture = JobFixture::new("leader").await;
    let stop = CancellationToken::new();
    let first = start(&fixture, "controller-a", &stop);
    leads(&fixture, "controller-a").await;
    let ending = CancellationToken::new();
    let second = start(&fixture, "controller-b", &ending);
    fixture.submit(&single("one")).await;
    fixture.partition_ready(0).await;
    let worker = fixture.pod_exists("one-worker-0").await;

    first.abort();
    leads(&fixture, "controller-b").await;
    fixture.pod_runs("one-worker-0").await;
    fixture.row("one", "Running 1 1", "").await;
    let same = fixture.pods().get("one-worker-0").await.unwrap();
    assert_eq!(same.metadata.uid, worker.metadata.uid);

    // A controller that stops on a signal releases its Lease at once.
    let third = start(&fixture, "controller-c", &stop);
    ending.cancel();
    // Its jobs have deadlines in minutes, which the test does not wait for.
    eventually("it ends", async || second.is_finished().then_some(())).await;
    second.await.unwrap();
    leads(&fixture, "controller-c").await;
    fixture.pod_ends("one-worker-0", 0).await;
    fixture
        .row("one", "Completed 0 1", "All instances done")
        .await;
    fixture.delete("one").await;
    fixture.once_gone("one").await;
    stop.cancel();
    third.await.unwrap();
}
