//! Activates versions of policies once every replica has them ready, in one replica at a time.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use ipu_api::ipupolicy::{Hook, IPUPolicy, IPUPolicyStatus};
use ipu_runtime::clock;
use ipu_runtime::lease::{Elector, Leadership};
use ipu_runtime::panics;
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

use super::board::{LABEL, Living};
use super::commit;
use super::lineup::{lineup, members};
use super::report::Report;
use super::watch::PolicyStore;

/// How often everything is looked at without a sign of change: replicas die in silence.
const LOOK: Duration = Duration::from_secs(1);

/// Longest time of one write.
const WRITE: Duration = Duration::from_secs(5);

/// Why the status of a policy could not be written.
#[derive(Debug, thiserror::Error)]
enum CommitError {
    #[error("failed to write the status of the IPUPolicy {name}")]
    Write {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to write the status of the IPUPolicy {name}: no answer in time")]
    Late { name: String },
}

/// Activates versions whenever this replica leads, until `stop`.
pub async fn run(
    client: Client,
    elector: Elector,
    namespace: &str,
    policies: PolicyStore,
    stop: CancellationToken,
) {
    let (leases, heard, watching) = follow_leases(client.clone(), namespace);
    let leading = async {
        while let Some(held) = stop.run_until_cancelled(elector.acquire()).await {
            let coordinator = Coordinator {
                client: client.clone(),
                leases: Api::namespaced(client.clone(), namespace),
                policies: policies.clone(),
                held: held.clone(),
            };
            tokio::select! {
                () = elector.renew_until_lost(&held) => {}
                () = coordinator.lead(&leases, &heard, &stop) => {
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

struct Coordinator {
    client: Client,
    leases: Api<Lease>,
    policies: PolicyStore,
    held: Arc<Leadership>,
}

impl Coordinator {
    async fn lead(&self, leases: &Store<Lease>, heard: &Notify, stop: &CancellationToken) {
        let mut living = Living::default();
        let mut changes = self.policies.changes();
        while !stop.is_cancelled() {
            changes.mark_unchanged();
            let (reports, gone) = living.look(&leases.state(), Instant::now());
            for name in gone {
                // Somebody else may have deleted it, and a failure is met again at the next look.
                let params = DeleteParams::default();
                let _ = timeout(WRITE, self.leases.delete(&name, &params)).await;
            }
            if leases_are_known(leases).await {
                let committed = panics::caught(self.commit(&reports)).await;
                if let Err(panicked) = committed {
                    tracing::error!("failed to activate IPUPolicies; trying again: {panicked}");
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                _ = changes.changed() => {}
                () = heard.notified() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Writes every status that is to change.
    async fn commit(&self, reports: &[Report]) {
        for (policy, status) in decided(self.policies.all(), reports, clock::now()) {
            if !self.held.is_valid() {
                return;
            }
            if let Err(error) = self.write(policy, status).await {
                tracing::warn!("{}; trying again", explain(&error));
            }
        }
    }

    /// Compared with the version that was read: what somebody else wrote meanwhile is read first.
    async fn write(&self, policy: IPUPolicy, status: IPUPolicyStatus) -> Result<(), CommitError> {
        let name = policy.name_any();
        let api = Api::<IPUPolicy>::all(self.client.clone());
        tell(&policy, &status);
        let whole = IPUPolicy {
            status: Some(status),
            ..policy
        };
        let params = PostParams::default();
        let written = timeout(WRITE, api.replace_status(&name, &params, &whole)).await;
        match written {
            Ok(Ok(_)) => Ok(()),
            // The watch brings what is newer, or that it is gone.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(()),
            Ok(Err(source)) => Err(CommitError::Write {
                name,
                source: Box::new(source),
            }),
            Err(_) => Err(CommitError::Late { name }),
        }
    }
}

/// Pure in all but its name: the statuses that are to change.
fn decided(
    policies: Vec<IPUPolicy>,
    reports: &[Report],
    now: Timestamp,
) -> Vec<(IPUPolicy, IPUPolicyStatus)> {
    let with_status = |policy: IPUPolicy| {
        let next = commit::status(&policy, reports, now);
        let mut after = policy.clone();
        after.status = Some(next);
        (policy, after)
    };
    let pairs: Vec<_> = policies.into_iter().map(with_status).collect();
    let members = members(pairs.iter().map(|(_, after)| after));
    let lineups = [Hook::Defaulting, Hook::Validation, Hook::Placement]
        .map(|hook| (hook, lineup(&members, hook)));
    let complete = |(policy, after): (IPUPolicy, IPUPolicy)| {
        let (_, lineup) = lineups.iter().find(|(hook, _)| *hook == policy.spec.hook)?;
        let status = commit::with_phase(after.status?, &policy, reports, lineup, now);
        (policy.status.as_ref() != Some(&status)).then_some((policy, status))
    };
    pairs.into_iter().filter_map(complete).collect()
}

fn tell(policy: &IPUPolicy, status: &IPUPolicyStatus) {
    let before = policy.status.as_ref();
    let is_news = before.is_none_or(|before| {
        before.phase != status.phase || before.active_digest != status.active_digest
    });
    if is_news {
        tracing::info!(
            policy = policy.name_any(),
            phase = ?status.phase,
            digest = status.active_digest,
            "{}",
            status.message
        );
    }
}

/// A replica that nobody has heard of yet may live: nothing is decided before all were listed.
async fn leases_are_known(leases: &Store<Lease>) -> bool {
    timeout(LOOK, leases.wait_until_ready()).await.is_ok()
}

fn follow_leases(
    client: Client,
    namespace: &str,
) -> (Store<Lease>, Arc<Notify>, impl Future<Output = ()> + use<>) {
    let (store, writer) = reflector::store();
    let heard = Arc::new(Notify::new());
    let told = heard.clone();
    let config = watcher::Config::default().labels(LABEL);
    let events = watcher(Api::<Lease>::namespaced(client, namespace), config).default_backoff();
    let watching = reflector::reflector(writer, events).for_each(move |event| {
        match event {
            Ok(_) => told.notify_one(),
            Err(error) => {
                tracing::warn!(%error, "failed to watch the Leases of replicas; trying again");
            }
        }
        std::future::ready(())
    });
    (store, heard, watching)
}
