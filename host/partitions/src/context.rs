//! The context of all reconciles of IPUPartitions.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::Namespaces;
use ipu_runtime::events::{Event, EventQueue};
use ipu_runtime::lease::Leadership;
use ipu_runtime::scope::Scope;
use ipu_runtime::work_queue::metrics::Reconciles;
use kube::{Client, Resource};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::accounting::AccountStore;
use super::controller_pool::ControllerPool;
use super::placement_queue::Ended;
use super::queue_state::QueueState;
use super::read_your_writes::ReadYourWrites;
use super::step::Settings;
use super::watched::Watched;

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

/// The context that all reconciles and the sweep share while the replica leads: that of the replica, and what is of the
/// leader alone.
pub struct Context {
    shared: Shared,
    /// The leadership of this replica.
    pub leadership: Arc<Leadership>,
    /// Events about IPUPartitions.
    pub events: EventQueue,
    /// Notified after a release of IPUs: waiting requests are decided again.
    pub(super) released: Arc<Notify>,
    /// The queue of waiting requests.
    pub(super) queue_state: QueueState,
    /// The last writes, so that no reconcile decides on an older copy.
    pub(super) read_your_writes: ReadYourWrites,
    idle_rounds: Mutex<HashMap<Uid, u32>>,
    /// The last report about each object, by its UID.
    reported: Mutex<HashMap<String, String>>,
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
        Context {
            events: EventQueue::new(
                &shared.client,
                "ipu-operator-vipu-proxy",
                shared.instance.as_deref(),
                shared.reconciles.events_lost.clone(),
            ),
            shared,
            leadership,
            released: Arc::default(),
            queue_state: QueueState::default(),
            read_your_writes: ReadYourWrites::default(),
            idle_rounds: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    /// Queues an event about an IPUPartition.
    pub(super) fn publish<K>(&self, object: &K, event: Event)
    where
        K: Resource<DynamicType = ()>,
    {
        self.events.publish(object.object_ref(&()), vec![event]);
    }

    /// A reconcile of this partition ends. Its request for a controller ends too, if the reconcile did not need one.
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

    /// Counts the reconciles of the object with this UID in a row that wrote nothing.
    pub(super) fn count_idle(&self, uid: &str, has_worked: bool) -> u32 {
        let mut idle_rounds = self.idle_rounds.lock();
        let count = idle_rounds.entry(Uid::of(uid)).or_default();
        *count = if has_worked {
            0
        } else {
            count.saturating_add(1)
        };
        *count
    }

    /// Drops an object whose finalizer was removed.
    pub(super) fn forget(&self, uid: &str) {
        let mut idle_rounds = self.idle_rounds.lock();
        idle_rounds.remove(&Uid::of(uid));
        self.reported().remove(uid);
        let is_freed = self.queue_state.forget(uid);
        self.freed(uid, is_freed);
        self.read_your_writes.note_release(uid, Instant::now());
    }

    /// Whether this text differs from the last report about an object. A lasting problem is checked repeatedly and reported
    /// once.
    pub(super) fn is_news(&self, uid: &str, text: &str) -> bool {
        let before = self.reported().insert(uid.to_owned(), text.to_owned());
        before.as_deref() != Some(text)
    }

    fn reported(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.reported.lock()
    }
}
