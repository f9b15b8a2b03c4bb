//! Pure: the states of the IPUs of all V-IPU controllers, from the ledger, the controllers'
//! reports, and Pods.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupartition::PartitionPhase;
use ipu_api::partition_request::largest_partition;
use ipu_api::uid::Uid;
use jiff::{SignedDuration, Timestamp};
use vipu_client::inventory::Report;

use super::ipu_states::{ControllerUse, IpuGroup, IpuState};
use super::pod_readiness::PodCounts;
use crate::store::Brief;

/// Time after which a ready partition without any Pod is idle, whether or not a Pod has used it
/// before. A new leader has not seen earlier Pods.
const FIRST_POD_WAIT: Duration = Duration::from_mins(10);

/// The report of a controller, as far as accounts need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerReport {
    /// Its address.
    pub name: String,
    /// All of its IPUs. `None`: it does not answer.
    pub total: Option<u32>,
    /// IPUs in partitions that the operator has not created.
    pub others: u32,
    /// The largest partition that fits.
    pub largest_free: u32,
}

/// The partitions of all IPUPartitions, by the address of their controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerUse {
    controllers: HashMap<Arc<str>, Vec<IpuGroup>>,
    /// The ids of all partitions.
    ids: HashSet<Uid>,
    /// The smallest request that waits.
    smallest_waiting: Option<u32>,
}

/// The partitions that a Pod has used, each with the time since when it was ready then. It is ready
/// since another time after a reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedPartitions(HashMap<Uid, Option<Timestamp>>);

impl LedgerUse {
    /// The use of all partitions at `now`. `pods` returns the Pods of a namespace that use a
    /// partition, or `None` as long as Pods are unknown. `smallest_waiting` is the size of the
    /// smallest request that waits.
    pub fn of<'a>(
        briefs: impl Iterator<Item = &'a Brief>,
        smallest_waiting: Option<u32>,
        pods: impl Fn(&Arc<str>, Uid) -> Option<PodCounts>,
        used: &mut UsedPartitions,
        now: Timestamp,
    ) -> Self {
        let mut ledger = Self {
            smallest_waiting,
            ..Self::default()
        };
        for brief in briefs {
            let is_held = |id: Uid| brief.held.iter().any(|one| one.id == id);
            let requested = brief.requested.iter().filter(|one| !is_held(one.id));
            for one in brief.held.iter().chain(requested) {
                let namespace = brief.namespace.clone().unwrap_or_default();
                let counts = || pods(&namespace, one.id);
                let state = state(brief, one.id, counts, used, now);
                ledger.ids.insert(one.id);
                let controller = Arc::clone(&one.controller);
                let there = ledger.controllers.entry(controller).or_default();
                there.push(IpuGroup {
                    namespace,
                    ipus: one.ipus,
                    state,
                });
            }
        }
        used.0.retain(|id, _| ledger.ids.contains(id));
        ledger
    }

    /// Whether an IPUPartition has a partition on this controller.
    pub fn has_controller(&self, name: &str) -> bool {
        self.controllers.contains_key(name)
    }

    /// The report of a controller. Partitions that it lists are of others if no IPUPartition has
    /// them, and the operator has not just removed them.
    pub fn report(&self, report: &Report) -> ControllerReport {
        let name = report.controller.name.clone();
        let Ok(inventory) = &report.inventory else {
            return ControllerReport {
                name,
                total: None,
                others: 0,
                largest_free: 0,
            };
        };
        let others = inventory.partitions.iter().filter(|one| {
            let id = Uid::of(&one.id);
            !self.ids.contains(&id) && !inventory.changed.contains(&id)
        });
        ControllerReport {
            name,
            total: Some(inventory.total),
            others: others.fold(0, |sum, one| sum.saturating_add(one.ipus)),
            largest_free: inventory.largest_free(),
        }
    }

    /// The use of each reported controller.
    pub fn observed(&self, reports: &[ControllerReport]) -> BTreeMap<String, ControllerUse> {
        let each = reports.iter().map(|report| {
            let partitions = self.controllers.get(report.name.as_str());
            let partitions = partitions.cloned().unwrap_or_default();
            let taken = partitions
                .iter()
                .fold(report.others, |sum, one| sum.saturating_add(one.ipus));
            let free = report.total.unwrap_or(0).saturating_sub(taken);
            let largest_free = report.largest_free.min(largest_partition(free));
            let observed = ControllerUse {
                total: report.total,
                others: report.others,
                partitions,
                is_stranded: self
                    .smallest_waiting
                    .is_some_and(|ipus| ipus > largest_free),
            };
            (report.name.clone(), observed)
        });
        each.collect()
    }
}

/// The state of the partition with this id.
fn state(
    brief: &Brief,
    id: Uid,
    pods: impl Fn() -> Option<PodCounts>,
    used: &mut UsedPartitions,
    now: Timestamp,
) -> IpuState {
    let Some(phase) = brief.phase else {
        // The IPUPartition cannot be read.
        return IpuState::Unknown;
    };
    if brief.requested.iter().any(|one| one.id == id) {
        return IpuState::Forming;
    }
    match phase {
        // The controller may have lost the partition, which is no longer the current one then.
        PartitionPhase::Error => IpuState::Unhealthy,
        _ if brief.current != Some(id) => IpuState::Releasing,
        PartitionPhase::Resetting => IpuState::Resetting,
        PartitionPhase::Releasing => IpuState::Releasing,
        PartitionPhase::Pending | PartitionPhase::Creating | PartitionPhase::Rejected => {
            if brief.is_deleted() {
                IpuState::Releasing
            } else {
                IpuState::Forming
            }
        }
        PartitionPhase::Ready => {
            let Some(pods) = pods() else {
                return IpuState::Unknown;
            };
            if pods.ready > 0 {
                used.0.insert(id, brief.ready_since);
                return IpuState::Running;
            }
            if brief.is_deleted() {
                return IpuState::Releasing;
            }
            if brief.is_busy {
                return IpuState::Resetting;
            }
            let is_used = used.0.get(&id) == Some(&brief.ready_since);
            unused(brief, pods, is_used, now)
        }
    }
}

/// The state of a ready partition without a ready Pod. `is_used`: one was ready before.
fn unused(brief: &Brief, pods: PodCounts, is_used: bool, now: Timestamp) -> IpuState {
    if is_used || pods.started > 0 {
        return IpuState::IdleAllocated;
    }
    if pods.waiting > 0 {
        return IpuState::WaitingPods;
    }
    // Pods of Graphcore's operator have no id.
    if brief.is_adopted {
        return IpuState::Unknown;
    }
    let limit = SignedDuration::try_from(FIRST_POD_WAIT).unwrap_or(SignedDuration::MAX);
    let is_late = |since: Timestamp| now.duration_since(since) >= limit;
    if brief.ready_since.is_some_and(is_late) {
        IpuState::IdleAllocated
    } else {
        IpuState::WaitingPods
    }
}

#[cfg(test)]
mod tests;
