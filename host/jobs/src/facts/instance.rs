//! Pure: the facts about one instance of a job.

use std::collections::BTreeSet;

use ipu_api::ipujob_status::{InstanceEnd, InstanceStart};
use serde::Serialize;

use super::partition::{PartitionState, PartitionTimes};
use super::pod::{Failure, PodState};
use super::{Member, Owned};

/// One instance: a partition and the Pods that share it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Instance {
    /// Its index, from 0.
    pub index: u32,
    /// Its partition.
    pub partition: Owned<PartitionState>,
    /// Whether it must not start. A partition that it waits for is released.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// Times at which its partition was requested and became ready.
    #[serde(skip)]
    pub times: PartitionTimes,
    /// What the status records of its start.
    #[serde(skip)]
    pub start: InstanceStart,
    /// Its worker Pods, in the order of their GCDs.
    pub workers: Vec<Member>,
    /// Its live workers that were created from another template than the current one.
    pub outdated: Vec<String>,
    /// The end that the status records. A Pod that was deleted since is not recreated.
    pub end: Option<InstanceEnd>,
    /// Whether it ends as failed when one of its workers fails.
    #[serde(skip)]
    pub fails_with_worker: bool,
    /// Whether its Pods may have used the partition. Then other Pods can use it only after a reset.
    pub used: bool,
    /// Workers that never used the partition, because their Pods were not created, or deleted
    /// before they had a node.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub uncreated: BTreeSet<String>,
    /// Workers that never used the partition, because their nodes rejected them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub rejected: BTreeSet<String>,
    /// Number of resets of the current partition that the V-IPU controller did by itself.
    pub automatic_resets: u32,
    /// Whether its partition is pinned to its IPUs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

impl Instance {
    /// Whether it has ended, now or in an earlier reconcile: all its Pods have, or a failed one
    /// ends it.
    pub fn ended(&self) -> bool {
        let mut failed = self.failures();
        self.end.is_some()
            || self.workers.iter().all(|worker| worker.state.ended())
            || (self.fails_with_worker && failed.next().is_some())
    }

    /// The failures of its workers.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        let workers = self.workers.iter();
        workers.filter_map(|worker| worker.state.failure())
    }

    /// Whether one of its Pods may still use the partition.
    pub fn live(&self) -> bool {
        self.workers.iter().any(Member::live)
    }

    /// Whether a Pod must be created or recreated.
    pub fn incomplete(&self) -> bool {
        self.workers.iter().any(|worker| worker.state.missing())
    }

    /// Whether all its Pods are Ready.
    pub fn available(&self) -> bool {
        self.workers.iter().all(|worker| worker.state.ready())
    }

    /// Whether one of its live Pods was created from another template than the current one.
    pub fn is_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }

    /// Returns its end, if it has ended. The first failed Pod decides.
    pub fn instance_end(&self) -> Option<InstanceEnd> {
        if self.end.is_some() || !self.ended() {
            return self.end.clone();
        }
        let failure = self.failures().next();
        Some(InstanceEnd {
            failure: failure.map(ToString::to_string),
            exit_code: failure.and_then(|failure| failure.exit_code),
        })
    }

    /// Whether all its Pods restart together, on a partition that was reset.
    pub fn must_restart(&self) -> bool {
        let has_lost = self.used && self.has_lost_pod();
        has_lost || self.holds_up_its_reset()
    }

    /// Whether its Pods hold up the reset that the missing ones wait for. A leader requests a reset
    /// when it sees no Pod: one that it did not see, or that another leader has created since, is
    /// left.
    fn holds_up_its_reset(&self) -> bool {
        self.times.is_reset_pending && self.incomplete() && self.live()
    }

    /// Whether a Pod is missing that may have used the partition. Then the other Pods restart with
    /// it.
    pub fn has_lost_pod(&self) -> bool {
        let mut missing = self.workers.iter().filter(|found| found.state.missing());
        missing.any(|found| !self.is_unused_by(found))
    }

    /// Whether a missing worker has certainly not used the partition.
    fn is_unused_by(&self, worker: &Member) -> bool {
        let is_uncreated = worker.uid.is_none() && self.uncreated.contains(&worker.name);
        let is_rejected = matches!(worker.state, PodState::Rejected(_))
            || self.rejected.contains(&worker.name) && !worker.state.started();
        is_uncreated || is_rejected
    }
}
