//! The observations of one reconcile, kept beside the core's own to check it.

use std::collections::BTreeSet;

use ipu_ledger::observations::{HealthState, Observation, PartitionHealth, RemoteState, Reply};

/// Ids by what a reconcile has observed of them. Nothing is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Evidence {
    /// It requested their removal.
    pub asked: BTreeSet<String>,
    /// It requested their removal, and was refused or timed out.
    pub unanswered: BTreeSet<String>,
    /// Their controller is not available.
    pub unreachable: BTreeSet<String>,
    /// Their controller reported them as absent, or was never reached.
    pub absent: BTreeSet<String>,
    /// Their controller reported them as active.
    pub active: BTreeSet<String>,
    /// They were reset, as their controller reported.
    pub reset: BTreeSet<String>,
    /// Live Pods used them.
    pub in_use: BTreeSet<String>,
    /// No live Pod used them at the last count.
    pub unused: BTreeSet<String>,
    /// They were asked to go, or seen to.
    pub to_go: BTreeSet<String>,
}

impl Evidence {
    pub(crate) fn note(&mut self, observation: &Observation) {
        match observation {
            Observation::Created { id, reply } => {
                self.asked.insert(id.clone());
                match reply {
                    Reply::Done => {}
                    Reply::NotSent(_) => {
                        self.absent.insert(id.clone());
                    }
                    Reply::Exhausted(_) | Reply::Failed(_) => {
                        self.unanswered.insert(id.clone());
                    }
                }
            }
            Observation::RemoteState { id, remote_state } => {
                let ids = match remote_state {
                    RemoteState::Absent => &mut self.absent,
                    RemoteState::Unreachable(_)
                    | RemoteState::Denied(_)
                    | RemoteState::NotListed(_) => &mut self.unreachable,
                    RemoteState::Present(PartitionHealth {
                        state: HealthState::Active,
                        ..
                    }) => &mut self.active,
                    RemoteState::Present(PartitionHealth {
                        state: HealthState::Removing,
                        ..
                    }) => &mut self.to_go,
                    RemoteState::Present(_) => return,
                };
                ids.insert(id.clone());
            }
            Observation::Reset { id, error: None } => {
                self.reset.insert(id.clone());
            }
            Observation::Removed { id, .. } => {
                self.to_go.insert(id.clone());
            }
            Observation::Users { id, pods } => {
                if pods.is_empty() {
                    self.unused.insert(id.clone());
                } else {
                    self.unused.remove(id);
                    self.in_use.insert(id.clone());
                }
            }
            Observation::Reset { .. }
            | Observation::Written
            | Observation::Recorded(_)
            | Observation::Placed(..)
            | Observation::Eviction(_) => {}
        }
    }
}
