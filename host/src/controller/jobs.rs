//! Reconciles jobs and native Pods in one replica of the controller at a time, by turns under a Lease.

use std::time::Duration;

use ipu_jobs::JobSettings;
use ipu_pods::NativePodSettings;
use ipu_runtime::lease::{Elector, fenced};
use ipu_runtime::release::ReleaseOptions;
use ipu_text::explain;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::exposition::Metrics;

/// How long to wait before the job reconciler is tried again, where it could not start.
const AGAIN: Duration = Duration::from_secs(5);

/// How long reconciles under way may take once the process is told to stop; shorter than Kubernetes waits.
const DRAIN: Duration = Duration::from_secs(15);

/// Reconciles jobs, and native Pods where there are settings for them, whenever this replica leads, until `stop`; another takes over once it has not been
/// heard of for `ttl`. Where this one no longer leads, nothing is written any more and what is under way
/// is dropped as if the process was killed: every write names the UID or the version that it is for.
pub async fn lead_in_turn(
    client: &Client,
    release: &ReleaseOptions,
    (settings, native_pods, metrics): (&JobSettings, Option<&NativePodSettings>, &Metrics),
    ttl: Duration,
    stop: &CancellationToken,
) {
    let lease = format!("{}-controller-manager", release.fullname);
    let me = release.replica_name();
    let elector = Elector::new(client.clone(), &release.namespace, &lease, &me, ttl);
    let elector = elector
        .telling(metrics.leading.clone())
        .unless(metrics.conflicts.clone());
    while let Some(held) = stop.run_until_cancelled(elector.acquire()).await {
        let client = fenced(client, held.clone());
        tokio::select! {
            () = elector.keep(&held) => {}
            () = lead(&client, (settings, native_pods), metrics, stop) => {
                elector.release(&held).await;
                return;
            }
            () = drained(stop) => {
                elector.release(&held).await;
                return;
            }
        }
    }
}

/// Waits until the process is told to stop, and what was under way then has had its time.
async fn drained(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(DRAIN).await;
}

/// Runs both reconcilers. Where that of jobs cannot start (a CRD is missing, say), the webhooks go on.
async fn lead(
    client: &Client,
    (settings, native_pods): (&JobSettings, Option<&NativePodSettings>),
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    let pods = async {
        if let Some(settings) = native_pods {
            let (client, reconciles) = (client.clone(), metrics.of_pods());
            ipu_pods::run(client, settings.clone(), &reconciles, stop.clone()).await;
        }
    };
    tokio::join!(pods, lead_jobs(client, settings, metrics, stop));
}

async fn lead_jobs(
    client: &Client,
    settings: &JobSettings,
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    let metrics = metrics.of_jobs();
    while !stop.is_cancelled() {
        let run = ipu_jobs::run(client.clone(), settings.clone(), &metrics, stop.clone());
        let Err(failure) = run.await else {
            return;
        };
        error!(
            "the job reconciler could not start, and is tried again: {}",
            explain(&failure)
        );
        let _ = stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await;
    }
}
