//! Pure: what one reconcile of one IPUPartition has learned so far, fact by fact.
//!
//! Knowledge lives as long as one reconcile. What must outlive a crash stands in the status.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use ipu_api::ipupartition::{AutoResets, ControllerRef, DecidedBy, WaitingReason};

use super::surroundings::Surroundings;

/// One thing that a step has brought to light.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A status was written with the resource version that had been read.
    Written,
    /// The same, and this reconcile means to carry out the intent that is in it.
    Recorded(Intent),
    /// CreatePartition was called.
    Created {
        /// The id that was asked for.
        id: String,
        /// What came back.
        reply: Reply,
    },
    /// The controller was asked what it has of this id.
    Truth {
        /// The id that was asked about.
        id: String,
        /// The answer.
        truth: Truth,
    },
    /// The live Pods that carry this id were listed.
    Users {
        /// The id in the Pods' label.
        id: String,
        /// `namespace/name` of every live Pod.
        pods: Vec<String>,
    },
    /// RemovePartition was called; the error, where the reply was one or did not come.
    Removed {
        /// The id that was to go.
        id: String,
        /// What the controller said against it.
        error: Option<String>,
    },
    /// ResetPartition was called; the error, where the reply was one or did not come.
    Reset {
        /// The id that was to be reset.
        id: String,
        /// What the controller said against it.
        error: Option<String>,
    },
    /// Where the partition is to be made next, and a random number for the id of the attempt.
    Placed(Answer, u64),
    /// What surrounds the partition was looked at.
    Surroundings(Surroundings),
}

/// What came back when a partition was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The controller says that it is made.
    Done,
    /// The controller was never reached, so that nothing can come of it.
    NotSent(String),
    /// The controller said no, or nothing: what came of it has to be asked.
    Failed(String),
}

/// What is about to be asked of a controller, written down before it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// To make the partition of this id.
    Create(String),
    /// To reset the partition of this id.
    Reset(String),
}

/// What a controller has of one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    /// Nothing.
    Absent,
    /// A partition in this state.
    Present(Seen),
    /// It could not be asked, for this reason.
    Unreachable(String),
    /// It does not let the operator see the partition, for this reason: the partition may be there.
    Denied(String),
    /// It could not be asked, for this reason, and is not in the admin's list any more.
    NotListed(String),
}

impl Truth {
    /// Why it is not known what the controller has, where it is not.
    pub(super) fn unknown(&self) -> Option<&str> {
        match self {
            Truth::Absent | Truth::Present(_) => None,
            Truth::Unreachable(reason) | Truth::Denied(reason) | Truth::NotListed(reason) => {
                Some(reason)
            }
        }
    }
}

/// The state of a partition on its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether it can be used.
    pub state: SeenState,
    /// What the controller says is wrong with it.
    pub errors: Vec<String>,
    /// Resets that the controller made by itself.
    pub auto_resets: Option<AutoResets>,
}

// A time of Kubernetes has no hash; what is equal has the same one without it.
impl Hash for Seen {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.state, &self.errors).hash(state);
    }
}

/// Whether a partition can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeenState {
    /// Active, and nothing is being done to it.
    Active,
    /// Not active yet, or being reset.
    Busy,
    /// In error, or the last operation on it failed.
    Failed,
    /// On its way out.
    Removing,
}

/// Where a partition is to be made, once the placement policy's answer was found sound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// On this controller, which was chosen by that one.
    Try(ControllerRef, DecidedBy),
    /// Nowhere now.
    Wait(Vec<WaitingReason>),
    /// Nowhere yet: whoever has waited longer is served first, within seconds.
    Later(Vec<WaitingReason>),
    /// Nowhere, ever, for this reason.
    Reject(String),
}

/// All that one reconcile has learned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Knowledge {
    recorded: Option<Intent>,
    created: BTreeMap<String, Reply>,
    truths: BTreeMap<String, Truth>,
    users: BTreeMap<String, Vec<String>>,
    removed: BTreeMap<String, Option<String>>,
    reset: BTreeMap<String, Option<String>>,
    answer: Option<Answer>,
    nonce: u64,
    surroundings: Option<Surroundings>,
}

impl Knowledge {
    /// Takes in one fact, and forgets what it makes stale.
    pub fn learn(&mut self, fact: Fact) {
        match fact {
            // Who uses a partition is counted after the word that it is to go or to be reset was
            // written: a Pod that was started before it is seen, and none is started after it.
            Fact::Written => self.users.clear(),
            Fact::Recorded(intent) => {
                self.users.clear();
                self.recorded = Some(intent);
                self.answer = None;
            }
            Fact::Created { id, reply } => {
                self.recorded = None;
                self.truths.remove(&id);
                self.created.insert(id, reply);
            }
            Fact::Truth { id, truth } => {
                self.truths.insert(id, truth);
            }
            Fact::Users { id, pods } => {
                self.users.insert(id, pods);
            }
            Fact::Removed { id, error } => {
                self.truths.remove(&id);
                self.removed.insert(id, error);
            }
            Fact::Reset { id, error } => {
                self.recorded = None;
                self.truths.remove(&id);
                self.reset.insert(id, error);
            }
            Fact::Placed(answer, nonce) => (self.answer, self.nonce) = (Some(answer), nonce),
            Fact::Surroundings(found) => self.surroundings = Some(found),
        }
    }

    /// Whether this reconcile wrote down `intent` and has not acted on it yet. Only then may it
    /// act: an intent found in a status was written by somebody who may have acted already.
    pub(super) fn may(&self, intent: &Intent) -> bool {
        self.recorded.as_ref() == Some(intent)
    }

    /// What the controller has of `id`, where it was asked since the last effect on it.
    pub(super) fn truth(&self, id: &str) -> Option<&Truth> {
        self.truths.get(id)
    }

    /// The partition `id` as its controller shows it, where it is active there.
    pub(super) fn active(&self, id: &str) -> Option<&Seen> {
        match self.truth(id)? {
            Truth::Present(seen) if seen.state == SeenState::Active => Some(seen),
            _ => None,
        }
    }

    /// The live Pods that carry `id`, where they were listed.
    pub(super) fn users(&self, id: &str) -> Option<&[String]> {
        self.users.get(id).map(Vec::as_slice)
    }

    /// The reply to CreatePartition for `id`, where this reconcile called it.
    pub(super) fn created(&self, id: &str) -> Option<&Reply> {
        self.created.get(id)
    }

    /// The reply to RemovePartition for `id`, where this reconcile called it.
    pub(super) fn removed(&self, id: &str) -> Option<Option<&str>> {
        self.removed.get(id).map(Option::as_deref)
    }

    /// The reply to ResetPartition for `id`, where this reconcile called it.
    pub(super) fn reset(&self, id: &str) -> Option<Option<&str>> {
        self.reset.get(id).map(Option::as_deref)
    }

    /// What surrounds the partition, where that was looked at.
    pub(super) fn surroundings(&self) -> Option<&Surroundings> {
        self.surroundings.as_ref()
    }

    /// Has what surrounds the partition looked at again, after the partition changed.
    pub(super) fn forget_surroundings(&mut self) {
        self.surroundings = None;
    }

    /// Where the partition is to be made, where that was asked since the last attempt.
    pub(super) fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }

    /// The random number that came with the answer.
    pub(super) fn nonce(&self) -> u64 {
        self.nonce
    }
}
