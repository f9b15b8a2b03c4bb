//! The rollout leader: one replica of the controllers that activates versions once every replica is
//! ready with them.

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::{Hook, IPUPolicy, IPUPolicyStatus, PolicyPhase};
use ipu_runtime::clock;
use ipu_runtime::lease::{Elector, Leadership};
use ipu_runtime::panics;
use ipu_runtime::scope::watch::observe;
use ipu_text::explain;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ObjectMeta, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::active_set::{active_set, active_versions};
use super::existing_reviews::ExistingReviews;
use super::observed_policy::{ObservedPolicy, UnknownHook};
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
    (policies, reviews): (PolicyStore, ExistingReviews),
    stop: CancellationToken,
) {
    let (leases, lease_changes, watching) = watch_leases(client.clone(), namespace);
    let leading = async {
        while let Some(held) = stop.run_until_cancelled(elector.acquire()).await {
            let leader = RolloutLeader {
                client: client.clone(),
                leases: Api::namespaced(client.clone(), namespace),
                policies: policies.clone(),
                reviews: reviews.clone(),
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
    reviews: ExistingReviews,
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
        let now = clock::now();
        let known = changed_statuses(self.policies.all(), reports, &self.reviews, now);
        let known = known.into_iter().map(|(policy, status)| {
            log_transition(&policy, &status);
            let status = serde_json::to_value(status).unwrap_or_default();
            (policy.metadata, status)
        });
        let unknown = self.policies.of_unknown_hooks();
        let unknown = unknown.iter();
        let unknown = unknown.filter_map(|policy| refused_status(policy, now));
        for (metadata, status) in known.chain(unknown) {
            if !self.held.is_valid() {
                return;
            }
            if let Err(error) = self.write_status(&metadata, status).await {
                tracing::warn!("{}; trying again", explain(&error));
            }
        }
    }

    /// Replaces the status of the version that was read; on a conflict, the watch brings the newer
    /// version.
    ///
    /// The API server takes all other fields from the stored object. They are not sent, because
    /// this version does not know every field of a newer one.
    async fn write_status(&self, metadata: &ObjectMeta, status: Value) -> Result<(), StatusError> {
        let name = metadata.name.clone().unwrap_or_default();
        let resource = ApiResource::erase::<IPUPolicy>(&());
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let mut whole = DynamicObject::new(&name, &resource).data(json!({"status": status}));
        whole.metadata.resource_version = metadata.resource_version.clone();
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
    policies: Vec<ObservedPolicy>,
    reports: &[Report],
    reviews: &ExistingReviews,
    now: Timestamp,
) -> Vec<(IPUPolicy, IPUPolicyStatus)> {
    let with_status = |observed: ObservedPolicy| {
        let mut next = rollout::status(&observed, reports, now);
        let review = reviews.result(&observed.policy.uid().unwrap_or_default());
        next.existing = rollout::existing::of(&next, review);
        let mut after = observed.clone();
        after.policy.status = Some(next);
        (observed, after)
    };
    let pairs: Vec<_> = policies.into_iter().map(with_status).collect();
    let versions = active_versions(pairs.iter().map(|(_, after)| after));
    let active_sets = [Hook::Defaulting, Hook::Validation, Hook::Placement]
        .map(|hook| (hook, active_set(&versions, hook)));
    let complete = |(observed, after): (ObservedPolicy, ObservedPolicy)| {
        let (_, active_set) = active_sets
            .iter()
            .find(|(hook, _)| *hook == observed.policy.spec.hook)?;
        let next = after.policy.status?;
        let status = rollout::with_phase(next, &observed, reports, active_set, now);
        let policy = observed.policy;
        (policy.status.as_ref() != Some(&status)).then_some((policy, status))
    };
    pairs.into_iter().filter_map(complete).collect()
}

/// Pure: computes the status of a policy of an unknown hook, if it changes. The version that knows
/// the hook wrote all other fields, and needs them again after an upgrade.
fn refused_status(unknown: &UnknownHook, now: Timestamp) -> Option<(ObjectMeta, Value)> {
    let message = format!(
        "{}; nothing calls its guest. Upgrade the operator to the version of its CRDs, or delete the IPUPolicy",
        unknown.reason
    );
    let mut status = unknown.status.clone();
    if !status.is_object() {
        status = json!({});
    }
    let generation = unknown.metadata.generation.unwrap_or_default();
    status["conditions"] = rollout::of_refused(&status, generation, &message, now);
    status["phase"] = json!(PolicyPhase::Refused);
    status["message"] = json!(message);
    status["observedGeneration"] = json!(generation);
    (status != unknown.status).then(|| (unknown.metadata.clone(), status))
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

/// Whether the Leases are listed. A rollout waits for the list, because it must not miss a live
/// replica.
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
