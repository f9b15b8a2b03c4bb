//! What one reconcile has been told, kept beside the core's own knowledge to check it.

use std::collections::BTreeSet;

use crate::knowledge::{Fact, Reply, Seen, SeenState, Truth};

/// The ids about which a reconcile was told something, by what it was told. Nothing is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Evidence {
    /// It asked for them itself.
    pub asked: BTreeSet<String>,
    /// It asked for them, and heard no or nothing.
    pub unanswered: BTreeSet<String>,
    /// Their controller cannot be asked.
    pub unreachable: BTreeSet<String>,
    /// Their controller has nothing of them, or was never reached.
    pub absent: BTreeSet<String>,
    /// Their controller showed them as active.
    pub active: BTreeSet<String>,
    /// They were reset, as their controller said.
    pub reset: BTreeSet<String>,
    /// Live Pods used them.
    pub in_use: BTreeSet<String>,
    /// No live Pod used them when they were counted last.
    pub unused: BTreeSet<String>,
    /// They were asked to go, or seen to.
    pub to_go: BTreeSet<String>,
}

impl Evidence {
    pub(crate) fn note(&mut self, fact: &Fact) {
        match fact {
            Fact::Created { id, reply } => {
                self.asked.insert(id.clone());
                match reply {
                    Reply::Done => {}
                    Reply::NotSent(_) => {
                        self.absent.insert(id.clone());
                    }
                    Reply::Failed(_) => {
                        self.unanswered.insert(id.clone());
                    }
                }
            }
            Fact::Truth { id, truth } => {
                let told = match truth {
                    Truth::Absent => &mut self.absent,
                    Truth::Unreachable(_) | Truth::Denied(_) | Truth::NotListed(_) => {
                        &mut self.unreachable
                    }
                    Truth::Present(Seen {
                        state: SeenState::Active,
                        ..
                    }) => &mut self.active,
                    Truth::Present(Seen {
                        state: SeenState::Removing,
                        ..
                    }) => &mut self.to_go,
                    Truth::Present(_) => return,
                };
                told.insert(id.clone());
            }
            Fact::Reset { id, error: None } => {
                self.reset.insert(id.clone());
            }
            Fact::Removed { id, .. } => {
                self.to_go.insert(id.clone());
            }
            Fact::Users { id, pods } => {
                if pods.is_empty() {
                    self.unused.insert(id.clone());
                } else {
                    self.unused.remove(id);
                    self.in_use.insert(id.clone());
                }
            }
            Fact::Reset { .. }
            | Fact::Written
            | Fact::Recorded(_)
            | Fact::Placed(..)
            | Fact::Surroundings(_) => {}
        }
    }
}
