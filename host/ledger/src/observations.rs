//! Pure: the observations of one reconcile of one IPUPartition.
//!
//! They live as long as the reconcile. The status records what must survive a crash.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use ipu_api::ipupartition::AutoResets;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::drain::EvictionState;

/// Maximum number of Pods that are listed as users of a partition. A message names one fewer. A
/// tenant can create any number of Pods with the id.
pub const USERS_MAX: usize = 5;

/// The result of one step.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The object was written with the resource version that was read.
    Written,
    /// The same, and this reconcile carries out the intent in it.
    Recorded(Intent),
    /// CreatePartition was called.
    Created {
        /// Id of the requested partition.
        id: String,
        /// The reply.
        reply: Reply,
    },
    /// The state of the partition was read from its controller.
    RemoteState {
        /// Id of the partition.
        id: String,
        /// Its state.
        remote_state: RemoteState,
    },
    /// The live Pods with this id were listed.
    Users {
        /// The id in the label of the Pods.
        id: String,
        /// `namespace/name` of every live Pod. If there are at least [`USERS_MAX`], some may be
        /// missing.
        pods: Vec<String>,
    },
    /// RemovePartition was called. `error` is set if it failed or no reply arrived.
    Removed {
        /// Id of the partition.
        id: String,
        /// Reason that the controller gave, if it failed.
        error: Option<String>,
    },
    /// ResetPartition was called. `error` is set if it failed or no reply arrived.
    Reset {
        /// Id of the partition.
        id: String,
        /// Reason that the controller gave, if it failed.
        error: Option<String>,
    },
    /// The placement decision.
    Placed(Answer),
    /// The eviction of the partition was evaluated.
    Eviction(EvictionState),
}

/// A placement decision, with the data for the attempt that follows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The decision.
    pub decision: PlacementDecision,
    /// Short hash of the V-IPU user id of calls to the chosen controller. `None`: they have none.
    pub account: Option<String>,
    /// A random number for the id of the attempt.
    pub nonce: u64,
}

/// The reply to CreatePartition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The controller reports success.
    Done,
    /// The request never reached the controller, so it has no effect.
    NotSent(String),
    /// The controller refused because it lacks free IPUs. The outcome is unknown until the state is
    /// read.
    Exhausted(String),
    /// The controller refused for another reason, or no reply arrived: the outcome is unknown until
    /// the state is read.
    Failed(String),
}

/// A request to a controller, recorded before it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Creates the partition with this id.
    Create(String),
    /// Resets the partition with this id.
    Reset(String),
}

/// The state of one partition on its controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RemoteState {
    /// The controller has no such partition.
    Absent,
    /// The controller has the partition, with this health.
    Present(PartitionHealth),
    /// The controller does not answer, for this reason.
    Unreachable(String),
    /// The controller denies access, for this reason. The partition may exist.
    Denied(String),
    /// The controller does not answer, for this reason, and has left the admin's list.
    NotListed(String),
}

impl RemoteState {
    /// The reason why the state is unknown. `None`: it is known.
    pub fn unknown(&self) -> Option<&str> {
        match self {
            RemoteState::Absent | RemoteState::Present(_) => None,
            RemoteState::Unreachable(reason)
            | RemoteState::Denied(reason)
            | RemoteState::NotListed(reason) => Some(reason),
        }
    }
}

/// The health of a partition on its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionHealth {
    /// Whether Pods can use it.
    pub state: HealthState,
    /// Errors that the controller reports.
    pub errors: Vec<String>,
    /// Automatic resets by the controller.
    pub auto_resets: Option<AutoResets>,
    /// Place of its first IPU, from the last list of the controller. `None`: not known.
    pub first_ipu: Option<u32>,
    /// Short hash of the V-IPU user id that was shown the partition. `None`: the call had none.
    pub account: Option<String>,
}

// A time of Kubernetes has no hash; what is equal has the same one without it.
impl Hash for PartitionHealth {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.state, &self.errors, self.first_ipu, &self.account).hash(state);
    }
}

/// Whether Pods can use a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthState {
    /// Active, and no operation is in progress.
    Active,
    /// Not active yet, or being reset.
    Busy,
    /// In error, or the last operation on it failed.
    Failed,
    /// It is being removed.
    Removing,
}

/// The number of the listed live Pods in the words of a message.
pub fn live_pods(pods: &[String]) -> String {
    let at_least = if pods.len() < USERS_MAX {
        ""
    } else {
        "at least "
    };
    format!("{at_least}{} live Pods", pods.len())
}

/// The observations of one reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observations {
    recorded: Option<Intent>,
    created: BTreeMap<String, Reply>,
    remote_states: BTreeMap<String, RemoteState>,
    users: BTreeMap<String, Vec<String>>,
    removed: BTreeMap<String, Option<String>>,
    reset: BTreeMap<String, Option<String>>,
    answer: Option<Answer>,
    eviction_state: Option<EvictionState>,
}

impl Observations {
    /// Adds an observation, and drops those that it makes stale.
    pub fn observe(&mut self, observation: Observation) {
        match observation {
            // Users are counted after the removal or the reset was recorded: a Pod that started
            // before is counted, and none starts afterwards.
            Observation::Written => self.users.clear(),
            Observation::Recorded(intent) => {
                self.users.clear();
                self.recorded = Some(intent);
                self.answer = None;
            }
            Observation::Created { id, reply } => {
                self.recorded = None;
                self.remote_states.remove(&id);
                self.created.insert(id, reply);
            }
            Observation::RemoteState { id, remote_state } => {
                self.remote_states.insert(id, remote_state);
            }
            Observation::Users { id, pods } => {
                self.users.insert(id, pods);
            }
            Observation::Removed { id, error } => {
                self.remote_states.remove(&id);
                self.removed.insert(id, error);
            }
            Observation::Reset { id, error } => {
                self.recorded = None;
                self.remote_states.remove(&id);
                self.reset.insert(id, error);
            }
            Observation::Placed(answer) => self.answer = Some(answer),
            Observation::Eviction(found) => self.eviction_state = Some(found),
        }
    }

    /// Whether this reconcile recorded `intent` and has not carried it out yet. Only then may it
    /// act: another reconcile may already have carried out an intent that it finds in a status.
    pub fn may(&self, intent: &Intent) -> bool {
        self.recorded.as_ref() == Some(intent)
    }

    /// The state of partition `id`, if it was read after the last change of the partition.
    pub fn remote_state(&self, id: &str) -> Option<&RemoteState> {
        self.remote_states.get(id)
    }

    /// The health of partition `id`, if it is active on its controller.
    pub fn active(&self, id: &str) -> Option<&PartitionHealth> {
        match self.remote_state(id)? {
            RemoteState::Present(health) if health.state == HealthState::Active => Some(health),
            _ => None,
        }
    }

    /// The live Pods with `id`, if they were listed. Of many, some may be missing.
    pub fn users(&self, id: &str) -> Option<&[String]> {
        self.users.get(id).map(Vec::as_slice)
    }

    /// The reply to CreatePartition for `id`, if this reconcile called it.
    pub fn created(&self, id: &str) -> Option<&Reply> {
        self.created.get(id)
    }

    /// The reply to RemovePartition for `id`, if this reconcile called it.
    pub fn removed(&self, id: &str) -> Option<Option<&str>> {
        self.removed.get(id).map(Option::as_deref)
    }

    /// The reply to ResetPartition for `id`, if this reconcile called it.
    pub fn reset(&self, id: &str) -> Option<Option<&str>> {
        self.reset.get(id).map(Option::as_deref)
    }

    /// The result of the evaluation of its eviction.
    pub fn eviction(&self) -> Option<&EvictionState> {
        self.eviction_state.as_ref()
    }

    /// Drops the evaluation of its eviction after the partition changed.
    pub(crate) fn forget_eviction(&mut self) {
        self.eviction_state = None;
    }

    /// The placement decision since the last attempt.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }
}
