//! Reconciles jobs, native Pods and queued jobs in the replica of the controller that holds the
//! Lease.

use std::time::Duration;

use ipu_jobs::delivery::{self, Mountable, ProbeSettings};
use ipu_jobs::{JobSettings, Shared};
use ipu_kueue::KueueSettings;
use ipu_pods::NativePodSettings;
use ipu_runtime::dry_run::DryRuns;
use ipu_runtime::lease::{Elector, fenced};
use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::served_group::ServedGroup;
use ipu_text::explain;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::exposition::Metrics;
use crate::shutdown::drained;

/// Delay before the job reconciler is restarted after a failed start.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The reconcilers of the leader.
pub struct Reconcilers<'a> {
    /// Settings of the reconciler of jobs.
    pub jobs: &'a JobSettings,
    /// Settings of the reconciler of native Pods. `None`: there is none.
    pub native_pods: Option<NativePodSettings>,
    /// Settings of the reconciler of queued jobs, which runs while Kueue is installed. `None`:
    /// there is none.
    pub kueue: Option<(KueueSettings, ServedGroup)>,
    /// What the probes of nodes are built from, which decide how the agent gets into Pods. `None`:
    /// there are none.
    pub agent_probes: Option<ProbeSettings>,
    /// What they have shown.
    pub mountable: Mountable,
    /// What the API server has accepted lately.
    pub dry_runs: DryRuns,
    /// Metrics of all.
    pub metrics: &'a Metrics,
}

/// Runs the reconcilers while this replica leads, until `stop`. Another replica takes over when
/// this one has not renewed the Lease for `lease_duration`. Without the leadership this replica
/// writes nothing, and drops the reconciles in progress as if the process was killed: every write
/// has a UID or a version as its precondition.
pub async fn run_as_leader(
    client: &Client,
    release: &ReleaseOptions,
    reconcilers: &Reconcilers<'_>,
    lease_duration: Duration,
    stop: &CancellationToken,
) {
    let lease = format!("{}-controller-manager", release.fullname);
    let identity = release.replica_name();
    let elector = Elector::new(
        client.clone(),
        &release.namespace,
        &lease,
        &identity,
        lease_duration,
    );
    let elector = elector
        .with_status(reconcilers.metrics.leading.clone())
        .with_conflicts(reconcilers.metrics.conflicts.clone());
    while let Some(leadership) = stop.run_until_cancelled(elector.acquire()).await {
        let client = fenced(client, leadership.clone());
        tokio::select! {
            () = elector.renew_until_lost(&leadership) => {}
            () = lead(&client, reconcilers, stop) => {
                elector.release(&leadership).await;
                return;
            }
            () = drained(stop) => {
                elector.release(&leadership).await;
                return;
            }
        }
    }
}

/// Runs the reconcilers. If that of jobs cannot start, for example because a CRD is missing, the
/// webhooks continue.
async fn lead(client: &Client, reconcilers: &Reconcilers<'_>, stop: &CancellationToken) {
    let metrics = reconcilers.metrics;
    let pods = async {
        if let Some(settings) = &reconcilers.native_pods {
            let (client, reconciles) = (client.clone(), metrics.reconciles.of_kind("pod"));
            ipu_pods::run(client, settings.clone(), &reconciles, stop.clone()).await;
        }
    };
    let queued = async {
        if let Some((settings, served)) = &reconcilers.kueue {
            lead_queued(client, (settings, served.clone()), metrics, stop).await;
        }
    };
    let probed = async {
        if let Some(probes) = &reconcilers.agent_probes {
            delivery::follow(client.clone(), probes, &reconcilers.mountable, stop).await;
        }
    };
    tokio::join!(pods, queued, probed, lead_jobs(client, reconcilers, stop));
}

/// Reconciles queued jobs while Kueue is installed, until `stop`.
async fn lead_queued(
    client: &Client,
    (settings, served): (&KueueSettings, ServedGroup),
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    while stop
        .run_until_cancelled(served.wait_until(true))
        .await
        .is_some()
    {
        let ended = stop.child_token();
        let (client, reconciles) = (client.clone(), metrics.reconciles.of_kind("workload"));
        let run = ipu_kueue::run(client, settings.clone(), &reconciles, ended.clone());
        let removed = async {
            let _ = ended.run_until_cancelled(served.wait_until(false)).await;
            ended.cancel();
        };
        tokio::join!(run, removed);
    }
}

async fn lead_jobs(client: &Client, reconcilers: &Reconcilers<'_>, stop: &CancellationToken) {
    let (settings, metrics) = (reconcilers.jobs, reconcilers.metrics.of_jobs());
    let kueue = reconcilers.kueue.as_ref();
    let shared = Shared {
        kueue: kueue.map(|(_, served)| served.clone()).unwrap_or_default(),
        dry_runs: reconcilers.dry_runs.clone(),
        mountable: reconcilers.mountable.clone(),
    };
    while !stop.is_cancelled() {
        let run = ipu_jobs::run(
            client.clone(),
            settings.clone(),
            shared.clone(),
            &metrics,
            stop.clone(),
        );
        let Err(failure) = run.await else {
            return;
        };
        error!(
            "the job reconciler could not start, and is tried again: {}",
            explain(&failure)
        );
        let _ = stop
            .run_until_cancelled(tokio::time::sleep(RETRY_DELAY))
            .await;
    }
}
