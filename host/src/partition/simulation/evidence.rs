//! What one reconcile has been told, kept beside the core's own knowledge to check it.

use std::collections::BTreeSet;

use crate::partition::knowledge::{Fact, Reply, Seen, SeenState, Truth};

/// The ids about which a reconcile was told something, by what it was told. Nothing is forgotten.
#[derive(Debug, Default)]
pub(super) struct Evidence {
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
}

impl Evidence {
    pub(super) fn note(&mut self, fact: &Fact) {
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
                    Truth::Unreachable(_) => &mut self.unreachable,
                    Truth::Present(Seen {
                        state: SeenState::Active,
                        ..
                    }) => &mut self.active,
                    Truth::Present(_) => return,
                };
                told.insert(id.clone());
            }
            Fact::Reset { id, error: None } => {
                self.reset.insert(id.clone());
            }
            Fact::Users { id, pods } => {
                if !pods.is_empty() {
                    self.in_use.insert(id.clone());
                }
            }
            Fact::Reset { .. }
            | Fact::Written
            | Fact::Recorded(_)
            | Fact::Removed { .. }
            | Fact::Placed(_)
            | Fact::Surroundings(_) => {}
        }
    }
}
