//! The rollout leader: one replica of the controllers that activates versions once every replica is ready with them.

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::{Hook, IPUPolicy, IPUPolicyStatus};
use ipu_runtime::clock;
use ipu_runtime::lease::{Elector, Leadership};
use ipu_runtime::panics;
use ipu_runtime::scope::watch::observe;
use ipu_text::explain;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::active_set::{active_set, active_versions};
use super::replica_readiness::{LABEL, LiveReplicas};
use super::report::Report;
use super::rollout;
use super::watch::PolicyStore;

/// Resync period. A replica that ends causes no event.
const RESYNC: Duration = Duration::from_secs(1);

/// Timeout of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Failure to write the status of a policy.
#[derive(Debug, thiserror::Error)]
enum StatusError {
    #[error("failed to write the status of the IPUPolicy {0}")]
    Write(String, #[source] Box<kube::Error>),
    #[error("failed to write the status of the IPUPolicy {0}: no answer in time")]
    Timeout(String),
}

/// Activates versions while this replica leads, until `stop`.
pub async fn run(
    client: Client,
    elector: Elector,
    namespace: &str,
    policies: PolicyStore,
    stop: CancellationToken,
) {
    let (leases, lease_changes, watching) = watch_leases(client.clone(), namespace);
    let leading = async {
        while let Some(held) = stop.run_until_cancelled(elector.acquire()).await {
            let leader = RolloutLeader {
                client: client.clone(),
                leases: Api::namespaced(client.clone(), namespace),
                policies: policies.clone(),
                held: held.clone(),
            };
            tokio::select! {
                () = elector.renew_until_lost(&held) => {}
                () = leader.run(&leases, &lease_changes, &stop) => {
                    elector.release(&held).await;
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = leading => {}
        () = watching => {}
    }
}

struct RolloutLeader {
    client: Client,
    leases: Api<Lease>,
    policies: PolicyStore,
    held: Arc<Leadership>,
}

impl RolloutLeader {
    async fn run(&self, leases: &Store<Lease>, lease_changes: &Notify, stop: &CancellationToken) {
        let mut live = LiveReplicas::default();
        let mut changes = self.policies.changes();
        while !stop.is_cancelled() {
            changes.mark_unchanged();
            let (reports, expired) = live.observe(&leases.state(), Instant::now());
            for name in expired {
                // The Lease can be deleted already; the next iteration retries other failures.
                let params = DeleteParams::default();
                let _ = timeout(WRITE_TIMEOUT, self.leases.delete(&name, &params)).await;
            }
            if are_listed(leases).await {
                let written = panics::caught(self.write_statuses(&reports)).await;
                if let Err(panicked) = written {
                    tracing::error!("failed to activate IPUPolicies; trying again: {panicked}");
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                _ = changes.changed() => {}
                () = lease_changes.notified() => {}
                () = sleep(RESYNC) => {}
            }
        }
    }

    /// Writes every status that changes.
    async fn write_statuses(&self, reports: &[Report]) {
        for (policy, status) in changed_statuses(self.policies.all(), reports, clock::now()) {
            if !self.held.is_valid() {
                return;
            }
            if let Err(error) = self.write_status(policy, status).await {
                tracing::warn!("{}; trying again", explain(&error));
            }
        }
    }

    /// Replaces the status of the version that was read; on a conflict, the watch brings the newer version.
    async fn write_status(
        &self,
        policy: IPUPolicy,
        status: IPUPolicyStatus,
    ) -> Result<(), StatusError> {
        let name = policy.name_any();
        let api = Api::<IPUPolicy>::all(self.client.clone());
        log_transition(&policy, &status);
        let whole = IPUPolicy {
            status: Some(status),
            ..policy
        };
        let params = PostParams::default();
        let written = timeout(WRITE_TIMEOUT, api.replace_status(&name, &params, &whole)).await;
        match written {
            Ok(Ok(_)) => Ok(()),
            // The watch brings the newer version, or the deletion.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(()),
            Ok(Err(source)) => Err(StatusError::Write(name, Box::new(source))),
            Err(_) => Err(StatusError::Timeout(name)),
        }
    }
}

/// Pure: computes the statuses that change.
fn changed_statuses(
    policies: Vec<IPUPolicy>,
    reports: &[Report],
    now: Timestamp,
) -> Vec<(IPUPolicy, IPUPolicyStatus)> {
    let with_status = |policy: IPUPolicy| {
        let next = rollout::status(&policy, reports, now);
        let mut after = policy.clone();
        after.status = Some(next);
        (policy, after)
    };
    let pairs: Vec<_> = policies.into_iter().map(with_status).collect();
    let versions = active_versions(pairs.iter().map(|(_, after)| after));
    let active_sets = [Hook::Defaulting, Hook::Validation, Hook::Placement]
        .map(|hook| (hook, active_set(&versions, hook)));
    let complete = |(policy, after): (IPUPolicy, IPUPolicy)| {
        let (_, active_set) = active_sets
            .iter()
            .find(|(hook, _)| *hook == policy.spec.hook)?;
        let status = rollout::with_phase(after.status?, &policy, reports, active_set, now);
        (policy.status.as_ref() != Some(&status)).then_some((policy, status))
    };
    pairs.into_iter().filter_map(complete).collect()
}

fn log_transition(policy: &IPUPolicy, status: &IPUPolicyStatus) {
    let before = policy.status.as_ref();
    let is_transition = before.is_none_or(|before| {
        before.phase != status.phase || before.active_digest != status.active_digest
    });
    if is_transition {
        tracing::info!(
            policy = policy.name_any(),
            phase = ?status.phase,
            digest = status.active_digest,
            "{}",
            status.message
        );
    }
}

/// Whether the Leases are listed. A rollout waits for the list, because it must not miss a live replica.
async fn are_listed(leases: &Store<Lease>) -> bool {
    timeout(RESYNC, leases.wait_until_ready()).await.is_ok()
}

fn watch_leases(
    client: Client,
    namespace: &str,
) -> (Store<Lease>, Arc<Notify>, impl Future<Output = ()> + use<>) {
    let (store, mut writer) = reflector::store();
    let changes = Arc::new(Notify::new());
    let notify = changes.clone();
    let config = watcher::Config::default().labels(LABEL);
    let events = watcher(Api::<Lease>::namespaced(client, namespace), config).default_backoff();
    let watching = observe(events, move |event| {
        writer.apply_watcher_event(&event);
        notify.notify_one();
    });
    (store, changes, watching)
}
