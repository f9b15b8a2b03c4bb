//! The simulated V-IPU controllers: their state, and the effects of calls.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::ControllerRef;
use ipu_ledger::observations::{Observation, Reply};
use vipu_client::model::{Inventory, ListedPartition, OperationState, PartitionState, ReadyState};

use super::event_queue::Ticket;
use ipu_partitions::controllers::inventory_view::with_inventory;

/// The method of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    Create { ipus: u32 },
    Remove { force: bool },
    Reset,
}

/// A call in flight.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub controller: usize,
    pub verb: Verb,
    pub id: String,
    /// The reconcile that waits for the reply, if any.
    pub caller: Option<Ticket>,
    /// Whether the caller has given up before it arrives, or it arrives for the second time.
    pub is_late: bool,
    /// Whether the controller refuses it.
    pub is_refused: bool,
}

impl Call {
    /// The result of a call for its caller.
    pub(crate) fn observation(
        &self,
        result: Result<(), String>,
        was_never_sent: bool,
    ) -> Observation {
        let id = self.id.clone();
        match self.verb {
            Verb::Create { .. } => Observation::Created {
                reply: match result {
                    Ok(()) => Reply::Done,
                    Err(error) if was_never_sent => Reply::NotSent(error),
                    Err(error) if error.ends_with("(ResourceExhausted)") => Reply::Exhausted(error),
                    Err(error) => Reply::Failed(error),
                },
                id,
            },
            Verb::Remove { .. } => Observation::Removed {
                id,
                error: result.err(),
            },
            Verb::Reset => Observation::Reset {
                id,
                error: result.err(),
            },
        }
    }
}

/// The further course of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Then {
    Formed,
    FailedToForm,
    WasReset,
    FailedToReset,
    Gone,
    FailedToGo,
    /// It left ERROR without the operator, as after a reset by the user's program.
    Healed,
}

/// A partition on a controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Made {
    pub ipus: u32,
    /// Its IPUs of the controller.
    pub numbers: BTreeSet<u32>,
    pub ready: ReadyState,
    pub operation: OperationState,
    /// Whether the controller reports an unknown state.
    pub is_odd: bool,
}

impl Made {
    /// Its first IPU, if its IPUs are one block.
    fn first_ipu(&self) -> Option<u32> {
        let first = *self.numbers.first()?;
        let is_block = self.ipus.is_power_of_two()
            && first.is_multiple_of(self.ipus)
            && (first..first + self.ipus).eq(self.numbers.iter().copied());
        is_block.then_some(first)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault of its own, and they occur together"
)]
pub(crate) struct Controller {
    pub reference: ControllerRef,
    pub total: u32,
    /// IPUs that it reports: fewer while machines restart.
    pub reported: u32,
    /// Whether it is in the admin's list.
    pub is_listed: bool,
    pub is_down: bool,
    /// Whether it has just restarted, has not loaded its partitions yet, and changes nothing.
    pub is_blank: bool,
    /// Whether it denies access to the operator.
    pub denies: bool,
    /// Whether it refuses removals.
    pub refuses_removals: bool,
    /// Size above which it refuses creations, even with free IPUs.
    pub largest: u32,
    pub made: BTreeMap<String, Made>,
}

/// The label of the nodes of the controller with this index.
pub(super) fn node_label(index: usize) -> (String, String) {
    ("vipu".to_owned(), format!("pod{}", index + 1))
}

impl Controller {
    pub(crate) fn new(index: usize, total: u32) -> Self {
        let (label_key, host) = node_label(index);
        Controller {
            reference: ControllerRef {
                name: format!("{host}:8090"),
                label_value: host.clone(),
                host,
                port: 8090,
                label_key,
            },
            total,
            reported: total,
            is_listed: true,
            is_down: false,
            is_blank: false,
            denies: false,
            refuses_removals: false,
            largest: u32::MAX,
            made: BTreeMap::new(),
        }
    }

    /// Executes a call. The error is the controller's reply.
    pub(crate) fn accept(&mut self, id: &str, verb: Verb) -> Result<(), &'static str> {
        if self.is_blank {
            return Err("it has just started");
        }
        if self.denies {
            return Err("permission denied");
        }
        match verb {
            Verb::Create { ipus } => {
                if self.made.contains_key(id) {
                    return Err("there is a partition of this id");
                }
                if self.inventory().free() < ipus || ipus > self.largest {
                    return Err("not enough IPUs (ResourceExhausted)");
                }
                self.insert(
                    id.to_owned(),
                    ipus,
                    ReadyState::Pending,
                    OperationState::Creating,
                );
                Ok(())
            }
            Verb::Remove { .. } if self.refuses_removals => Err("it removes nothing now"),
            Verb::Remove { force } => {
                let made = self.made.get_mut(id).ok_or("there is no such partition")?;
                if made.operation == OperationState::Removing {
                    return Err("it is being removed");
                }
                if made.ready == ReadyState::Error && !force {
                    return Err("it is in error");
                }
                made.operation = OperationState::Removing;
                Ok(())
            }
            Verb::Reset => {
                let made = self.made.get_mut(id).ok_or("there is no such partition")?;
                if made.operation != OperationState::Idle {
                    return Err("another operation is under way");
                }
                made.ready = ReadyState::Pending;
                made.operation = OperationState::Resetting;
                Ok(())
            }
        }
    }

    /// Allocates IPUs that are in no partition that the controller has loaded: the first block, or
    /// else the first ones.
    pub(crate) fn insert(
        &mut self,
        id: String,
        ipus: u32,
        ready: ReadyState,
        operation: OperationState,
    ) {
        let is_free = |number: &u32| !self.made.values().any(|one| one.numbers.contains(number));
        let starts = (0..self.total).step_by(ipus.max(1) as usize);
        let blocks = starts.map(|first| first..first + ipus);
        let mut free_blocks = blocks
            .filter(|block| block.end <= self.total && block.clone().all(|ipu| is_free(&ipu)));
        let numbers: BTreeSet<u32> = if let Some(block) = free_blocks.next() {
            block.collect()
        } else {
            let free = (0..self.total).filter(is_free);
            free.take(ipus as usize).collect()
        };
        let made = Made {
            ipus,
            numbers,
            ready,
            operation,
            is_odd: false,
        };
        self.made.insert(id, made);
    }

    /// Continues an operation. Returns whether one was under way.
    pub(crate) fn progress(&mut self, id: &str, then: Then) -> bool {
        let Some(made) = self.made.get_mut(id) else {
            return false;
        };
        let (under_way, ready, operation) = match then {
            Then::Formed => (
                OperationState::Creating,
                ReadyState::Active,
                OperationState::Idle,
            ),
            Then::FailedToForm => (
                OperationState::Creating,
                ReadyState::Error,
                OperationState::Failed,
            ),
            Then::WasReset => (
                OperationState::Resetting,
                ReadyState::Active,
                OperationState::Idle,
            ),
            Then::FailedToReset => (
                OperationState::Resetting,
                ReadyState::Error,
                OperationState::Failed,
            ),
            Then::Healed => (
                OperationState::Idle,
                ReadyState::Active,
                OperationState::Idle,
            ),
            Then::Gone => (
                OperationState::Removing,
                ReadyState::Removed,
                OperationState::Idle,
            ),
            Then::FailedToGo => (
                OperationState::Removing,
                ReadyState::Error,
                OperationState::Failed,
            ),
        };
        if made.operation != under_way {
            return false;
        }
        made.ready = ready;
        made.operation = operation;
        if then == Then::Gone {
            self.made.remove(id);
        }
        true
    }

    /// The state of a partition as the controller reports it.
    pub(crate) fn state(&self, id: &str) -> Option<PartitionState> {
        let made = self.made.get(id).filter(|_| !self.is_blank)?;
        let is_odd = made.is_odd && made.operation == OperationState::Idle;
        let errors = match made.ready {
            ReadyState::Error => vec!["IPU link down".to_owned()],
            _ => Vec::new(),
        };
        Some(PartitionState {
            ready_state: if is_odd {
                ReadyState::Undefined
            } else {
                made.ready
            },
            operation_state: if is_odd {
                OperationState::Undefined
            } else {
                made.operation
            },
            errors,
            auto_resets: None,
        })
    }

    /// Whether a partition is being reset, by any client.
    pub(crate) fn is_busy(&self, id: &str) -> bool {
        let made = self.made.get(id);
        made.is_some_and(|made| made.operation == OperationState::Resetting)
    }

    /// Whether a partition is being removed.
    pub(crate) fn is_removing(&self, id: &str) -> bool {
        let made = self.made.get(id);
        made.is_some_and(|made| made.operation == OperationState::Removing)
    }

    /// Whether Pods can use a partition.
    pub(crate) fn is_usable(&self, id: &str) -> bool {
        let made = self.made.get(id);
        made.is_some_and(|made| {
            (made.ready, made.operation) == (ReadyState::Active, OperationState::Idle)
        })
    }

    pub(crate) fn inventory(&self) -> Inventory {
        let listed: Vec<ListedPartition> = self
            .made
            .iter()
            .map(|(id, made)| ListedPartition {
                id: id.clone(),
                ipus: made.ipus,
                gcds: 1,
                first_ipu: made.first_ipu(),
                ready_state: made.ready,
            })
            .collect();
        Inventory::new(self.reported, listed)
    }

    /// The reply of a controller and its view. Where the view is outdated, or the controller has
    /// not loaded its partitions, all IPUs seem free.
    pub(crate) fn view(&self, is_old: bool) -> (Inventory, ControllerView) {
        self.view_as(&self.reference, is_old)
    }

    /// The same of this entry of the list.
    pub(crate) fn view_as(
        &self,
        entry: &ControllerRef,
        is_old: bool,
    ) -> (Inventory, ControllerView) {
        let inventory = if is_old || self.is_blank {
            Inventory::new(self.reported, Vec::new())
        } else {
            self.inventory()
        };
        let view = ControllerView {
            name: entry.name.clone(),
            label_key: entry.label_key.clone(),
            label_value: entry.label_value.clone(),
            has_nodes: true,
            unschedulable: None,
            unreachable: (self.is_down || self.denies).then(|| "it is not to be asked".to_owned()),
            ..ControllerView::default()
        };
        let view = with_inventory(view, &inventory);
        (inventory, view)
    }
}
