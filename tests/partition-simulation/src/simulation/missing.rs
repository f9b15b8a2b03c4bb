//! For how long partitions are missing on their controllers, and which of them may count as lost.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{IPUPartitionStatus, PartitionPhase};
use ipu_api::partition_conditions;

use super::invariants::{NOT_RELEASED_EARLY, demand};

/// Since when each id is missing, in milliseconds, unless a status says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Missing {
    since: BTreeMap<String, u64>,
    /// Whether statuses were restored from a backup.
    is_restored: bool,
}

impl Missing {
    /// A controller has reported this id as absent.
    pub(crate) fn denied(&mut self, id: &str, now: u64) {
        self.since.entry(id.to_owned()).or_insert(now);
    }

    /// A status was written by a reconcile whose controller was unavailable for this id: whether it
    /// was present in between is not known.
    pub(crate) fn mark_unread(&mut self, id: &str) {
        self.since.remove(id);
    }

    /// Statuses were restored: what was noted since the backup does not count any more.
    pub(super) fn restored(&mut self) {
        self.is_restored = true;
    }

    /// A status replaces another one: a ready partition is released only once it was missing for
    /// the grace period and was not found in between.
    pub(crate) fn check(
        &mut self,
        before: &IPUPartitionStatus,
        after: &IPUPartitionStatus,
        grace: u64,
        now: u64,
    ) {
        let is_lost = before.phase != PartitionPhase::Creating
            && after.phase == PartitionPhase::Error
            && after.partition_id.is_none();
        if let Some(id) = before.partition_id.as_ref().filter(|_| is_lost) {
            let since = self.since.get(id);
            let is_late = since.is_some_and(|since| since + grace <= now) || self.is_restored;
            demand(is_late, NOT_RELEASED_EARLY, || {
                format!("{id} is given up, and lacking since {since:?}")
            });
        }
        if let Some(id) = &after.partition_id
            && partition_conditions::missing_since(after).is_none()
        {
            self.since.remove(id);
        }
    }
}
