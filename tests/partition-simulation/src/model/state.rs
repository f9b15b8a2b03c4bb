//! A state of the model.
//!
//! Equal states are explored once, so that a state contains no counters: an object is its content.
//! A copy of it only has whether it is current, as the API server compares a resource version for
//! nothing else. A reconcile is identified by its replica and its object, of which only one is
//! under way at a time. The history drops the reconcile that recorded an id once that one has
//! ended.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;
use ipu_ledger::step::Step;
use ipu_ledger::sweep::orphans::Suspects;

use super::faults::Faults;
use super::sweeper::Stage;
use crate::sim_adapter;
use crate::sim_reconcile::Reconcile;
use crate::simulation::api_server::Key;
use crate::simulation::controllers::{Controller, Verb};
use crate::simulation::event_queue::Ticket;
use crate::simulation::evidence::Evidence;
use crate::simulation::invariants::RunHistory;
use crate::simulation::missing::Missing;

/// An object as it was at some time. Its hash stands for its content.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub print: u64,
    pub object: Arc<IPUPartition>,
}

impl Version {
    pub(super) fn of(object: IPUPartition) -> Self {
        let text = serde_json::to_vec(&object).expect("an IPUPartition can be written as JSON");
        Self {
            print: print(&text),
            object: Arc::new(object),
        }
    }
}

impl Hash for Version {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.print.hash(state);
    }
}

/// A read copy of an object.
#[derive(Clone, Debug, Hash)]
pub(super) struct Copied {
    pub version: Version,
    /// Whether the object was not written since.
    pub is_current: bool,
}

/// A reconcile that is under way.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub core: Reconcile,
    pub evidence: Evidence,
    /// Whether its copy of the object is current.
    pub is_current: bool,
    /// The step that it has decided on and not executed yet.
    pub step: Step,
    /// The time of the decision.
    pub decided: u16,
}

// The step follows from the rest.
impl Hash for Task {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.core.hash(state);
        self.evidence.hash(state);
        (self.is_current, self.decided).hash(state);
    }
}

/// One replica of the controller.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Replica {
    /// Whether it considers itself the leader.
    pub acts: bool,
    /// Its outdated cache since it was paused; none where its watch is up to date.
    pub frozen: Option<BTreeMap<Key, Copied>>,
    pub tasks: BTreeMap<Key, Arc<Task>>,
    /// The controller that is assigned to each object, and its IPUs.
    pub assigned: BTreeMap<Key, (String, u32)>,
    pub suspects: Suspects,
    pub sweep: Option<Stage>,
}

/// A call that arrives after its caller has given up, or for the second time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Flying {
    pub controller: usize,
    pub verb: Verb,
    pub id: String,
}

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    There,
    Ending,
    Away,
}

/// An owner of one partition.
#[derive(Clone, Debug, Hash)]
pub(super) struct Owner {
    pub life: Life,
    /// The partition that its Pod uses, while there is one.
    pub pod: Option<String>,
    /// Whether that was on its controller when the Pod started: only then may the Pod use its IPUs.
    pub attached: bool,
    /// Number of Pods that it may start if it is careless: otherwise a reconcile that counts them
    /// might never end.
    pub starts: u8,
    /// The partitions that its Pods have begun to use.
    pub used: Option<String>,
    /// Number of objects that it has created.
    pub made: u8,
}

#[derive(Clone, Debug, Hash)]
#[expect(
    clippy::derived_hash_with_manual_eq,
    reason = "states are equal where their hashes are"
)]
pub(super) struct State {
    pub clock: u16,
    pub ticks: u8,
    pub sweeps: u8,
    pub faults: Faults,
    pub api: BTreeMap<Key, Version>,
    pub replicas: [Replica; 2],
    pub controllers: Vec<Arc<Controller>>,
    pub flying: Vec<Flying>,
    /// Ids with an operation that does not finish.
    pub stuck: BTreeSet<String>,
    pub owners: Vec<Owner>,
    pub history: Arc<RunHistory>,
    pub missing: Arc<Missing>,
    /// The present release.
    pub release: usize,
    /// The violated rule, and how.
    pub broken: Option<String>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.print() == other.print()
    }
}

impl State {
    pub(super) fn print(&self) -> u64 {
        print(self)
    }

    pub(super) fn controller(&mut self, index: usize) -> &mut Controller {
        Arc::make_mut(&mut self.controllers[index])
    }

    pub(super) fn history(&mut self) -> &mut RunHistory {
        Arc::make_mut(&mut self.history)
    }

    /// The Pods that use a partition, by name.
    pub(super) fn users(&self, id: &str) -> Vec<String> {
        let owners = self.owners.iter().enumerate();
        let users = owners.filter(|(_, owner)| owner.pod.as_deref() == Some(id));
        users
            .map(|(index, _)| format!("default/pod-{index}"))
            .collect()
    }

    pub(super) fn exists(&self, id: &str) -> bool {
        self.controllers.iter().any(|one| one.made.contains_key(id))
    }

    /// The objects as a replica sees them.
    pub(super) fn seen(&self, who: usize) -> Vec<Arc<IPUPartition>> {
        match &self.replicas[who].frozen {
            Some(copies) => copies
                .values()
                .map(|one| one.version.object.clone())
                .collect(),
            None => self.api.values().map(|one| one.object.clone()).collect(),
        }
    }

    /// The object was changed or deleted: copies of it are not current any more.
    pub(super) fn changed(&mut self, key: Key, now: Option<Version>) {
        for replica in &mut self.replicas {
            if let Some(version) = &now {
                sim_adapter::clear_owned(&mut replica.suspects, &version.object);
            }
        }
        match now {
            Some(version) => self.api.insert(key, version),
            None => self.api.remove(&key),
        };
        for replica in &mut self.replicas {
            if let Some(task) = replica.tasks.get_mut(&key) {
                Arc::make_mut(task).is_current = false;
            }
            let frozen = replica.frozen.as_mut();
            if let Some(copy) = frozen.and_then(|copies| copies.get_mut(&key)) {
                copy.is_current = false;
            }
        }
    }

    /// A reconcile has ended.
    pub(super) fn ended(&mut self, who: usize, key: Key) {
        self.replicas[who].tasks.remove(&key);
        self.replicas[who].assigned.remove(&key);
        self.history().ended(ticket(who, key));
    }

    /// All reconciles of a replica have ended.
    pub(super) fn dropped(&mut self, who: usize) {
        for key in self.replicas[who].tasks.keys().copied().collect::<Vec<_>>() {
            self.ended(who, key);
        }
    }
}

pub(super) fn ticket(who: usize, key: Key) -> Ticket {
    Ticket {
        who,
        key,
        serial: 0,
    }
}

fn print(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
