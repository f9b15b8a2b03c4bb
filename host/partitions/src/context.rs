//! What every reconcile of an IPUPartition works with.

use std::collections::HashMap;
use std::sync::Arc;

use ipu_api::uid::Uid;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::Namespaces;
use ipu_runtime::events::EventQueue;
use ipu_runtime::lease::Leadership;
use ipu_runtime::scope::Scope;
use ipu_runtime::work_queue::metrics::Reconciles;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::controller_pool::ControllerPool;
use super::queue_state::QueueState;
use super::read_your_writes::ReadYourWrites;
use super::step::Settings;
use super::watched::Watched;

/// What a replica has, whether it leads or not.
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
    /// What is known of every namespace.
    pub namespaces: Namespaces,
    /// Whose partitions are made.
    pub scope: Scope,
    /// Name of this process among its replicas.
    pub instance: Option<String>,
    /// Counts the reconciles.
    pub reconciles: Reconciles,
}

/// Shared by all reconciles and the sweep, for as long as the replica leads.
pub struct Context {
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
    /// What is known of every namespace.
    pub namespaces: Namespaces,
    /// Whose partitions are made.
    pub scope: Scope,
    /// That this replica leads.
    pub held: Arc<Leadership>,
    /// Counts the reconciles.
    pub(super) reconciles: Reconciles,
    /// Events about IPUPartitions.
    pub events: EventQueue,
    /// Told when IPUs were released, so that whoever waits is looked at again.
    pub(super) released: Arc<Notify>,
    /// Who waits, and who of them is served first.
    pub(super) queue_state: QueueState,
    /// What was written last, so that nothing is decided on a copy from before.
    pub(super) read_your_writes: ReadYourWrites,
    idle_rounds: Mutex<HashMap<Uid, u32>>,
    /// What was told of an object last, by its UID.
    told: Mutex<HashMap<String, String>>,
}

impl Context {
    /// What the replica works with while it leads.
    pub fn new(shared: Shared, held: Arc<Leadership>) -> Self {
        let Shared {
            client,
            pool,
            guests,
            settings,
            watched,
            namespaces,
            scope,
            instance,
            reconciles,
        } = shared;
        Context {
            events: EventQueue::new(
                &client,
                "ipu-operator-vipu-proxy",
                instance.as_deref(),
                reconciles.events_lost.clone(),
            ),
            client,
            pool,
            guests,
            settings,
            watched,
            namespaces,
            scope,
            held,
            reconciles,
            released: Arc::default(),
            queue_state: QueueState::new(),
            read_your_writes: ReadYourWrites::default(),
            idle_rounds: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// How often in a row the object of this UID rested with nothing done before, counting up.
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

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, uid: &str) {
        let mut idle_rounds = self.idle_rounds.lock();
        idle_rounds.remove(&Uid::of(uid));
        self.told().remove(uid);
        self.queue_state.forget(uid);
        self.read_your_writes.forget(uid);
    }

    /// Whether this was not what was told of an object last. What stays wrong is looked at again and
    /// again, and told once.
    pub(super) fn is_news(&self, uid: &str, text: &str) -> bool {
        let before = self.told().insert(uid.to_owned(), text.to_owned());
        before.as_deref() != Some(text)
    }

    fn told(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.told.lock()
    }
}
