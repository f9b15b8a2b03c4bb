//! The context of all reconciles of IPUPartitions.

pub(crate) mod decisions;
pub(crate) mod history;
pub(crate) mod read_your_writes;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_ledger::step::Settings;
use ipu_placement::requests::Ended;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::Namespaces;
use ipu_runtime::events::{Event, EventQueue};
use ipu_runtime::lease::Leadership;
use ipu_runtime::scope::Scope;
use ipu_runtime::work_queue::metrics::Reconciles;
use kube::{Client, Resource};
use tokio::sync::Notify;

use super::accounting::AccountStore;
use super::pod_users::PodUsers;
use super::pod_users::waits::PodWaits;
use crate::controllers::ControllerPool;
use crate::controllers::permits::ControllerPermits;
use crate::leader::decisions::QueueState;
use crate::leader::history::ReconcileHistory;
use crate::leader::read_your_writes::ReadYourWrites;
use crate::store::Cache;
use crate::store::watch::Watched;

/// The resources of a replica, leading or not.
#[derive(Clone)]
pub struct Shared {
    /// The API server.
    pub client: Client,
    /// The V-IPU controllers.
    pub pool: Arc<ControllerPool>,
    /// The placement policy.
    pub guests: ActivePolicies,
    /// This installation and its times.
    pub settings: Settings,
    /// The IPUPartitions, as the watch last saw them.
    pub watched: Watched,
    /// The usage of every namespace.
    pub namespaces: Namespaces,
    /// The namespaces whose partitions this release creates.
    pub scope: Scope,
    /// The accounts of IPU-seconds.
    pub accounts: AccountStore,
    /// Name of this process among its replicas.
    pub instance: Option<String>,
    /// Counts the reconciles.
    pub reconciles: Reconciles,
}

/// The context that all reconciles and the sweep share while the replica leads: that of the
/// replica, and what is of the leader alone.
pub struct Context {
    shared: Shared,
    /// The leadership of this replica.
    pub leadership: Arc<Leadership>,
    /// Events about IPUPartitions.
    pub events: EventQueue,
    /// Lists the Pods that use a partition.
    pub(super) pod_users: PodUsers,
    /// The IPUPartitions that wait until no Pod uses a partition.
    pub(super) pod_waits: PodWaits,
    /// Notified after a release of IPUs: waiting requests are decided again.
    pub(super) released: Arc<Notify>,
    /// The queue of waiting requests.
    pub(super) queue_state: QueueState,
    /// The last writes, so that no reconcile decides on an older copy.
    pub(super) read_your_writes: ReadYourWrites,
    /// Data of earlier reconciles for the next one.
    pub(super) history: ReconcileHistory,
    /// Bounds the reconciles that call V-IPU controllers.
    pub(super) permits: ControllerPermits,
}

impl Deref for Context {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Context {
    /// The context of a replica that leads.
    pub fn new(shared: Shared, leadership: Arc<Leadership>) -> Self {
        // A decision may have ended after the last leadership of this replica was lost.
        shared.namespaces.release_all();
        Context {
            events: EventQueue::new(
                &shared.client,
                "ipu-operator-vipu-proxy",
                shared.instance.as_deref(),
                shared.reconciles.events_lost.clone(),
            ),
            pod_users: PodUsers::new(shared.client.clone()),
            pod_waits: PodWaits::default(),
            shared,
            leadership,
            released: Arc::default(),
            queue_state: QueueState::default(),
            read_your_writes: ReadYourWrites::default(),
            history: ReconcileHistory::default(),
            permits: ControllerPermits::default(),
        }
    }

    /// Queues an event about an IPUPartition.
    pub(super) fn publish<K>(&self, object: &K, event: Event)
    where
        K: Resource<DynamicType = ()>,
    {
        self.events.publish(object.object_ref(&()), vec![event]);
    }

    /// A reconcile of this partition ends. Its request for a controller ends too, if the reconcile
    /// did not need one.
    pub(super) fn end_request(&self, partition: &IPUPartition, ended: Ended) {
        let uid = partition.meta().uid.as_deref().unwrap_or_default();
        let is_deleted = partition.meta().deletion_timestamp.is_some();
        let ended = if is_deleted { Ended::Well } else { ended };
        let is_freed = self
            .queue_state
            .requests()
            .end_reconcile(Uid::of(uid), ended);
        self.freed(uid, is_freed);
    }

    /// Withdraws the request of the partition with this UID.
    pub(super) fn withdraw(&self, uid: &str) {
        let is_freed = self.queue_state.requests().withdraw(Uid::of(uid));
        self.freed(uid, is_freed);
    }

    /// The IPUs that were assigned to the partition with this UID are free again, if it had some.
    pub(super) fn freed(&self, uid: &str, is_freed: bool) {
        if is_freed {
            self.namespaces.release(uid);
            self.released.notify_one();
        }
    }

    /// Drops an object whose finalizer was removed.
    pub(super) fn forget(&self, uid: &str) {
        self.history.forget(uid);
        let is_freed = self.queue_state.forget(uid);
        self.freed(uid, is_freed);
        self.read_your_writes.note_release(uid, Instant::now());
    }

    /// Drops what is kept about partitions that are gone. Returns whether IPUs became free.
    pub(super) fn drop_gone(&self) -> bool {
        let existing = |cache: &mut Cache| cache.briefs().map(|(brief, _)| brief.uid).collect();
        self.history.retain(&self.watched.read(existing));
        self.queue_state.drop_gone(&self.watched)
    }
}
