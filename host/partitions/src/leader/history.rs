//! Data of earlier reconciles of an IPUPartition for the next one: the number without an action,
//! and the last report.

use std::collections::{HashMap, HashSet};

use ipu_api::uid::Uid;
use parking_lot::Mutex;

/// The history of each IPUPartition, by its UID.
#[derive(Debug, Default)]
pub(crate) struct ReconcileHistory {
    idle_rounds: Mutex<HashMap<Uid, u32>>,
    /// Digests of the texts.
    reports: Mutex<HashMap<Uid, Uid>>,
}

impl ReconcileHistory {
    /// Counts the reconciles in a row that wrote nothing, and returns their number.
    pub(crate) fn count_idle(&self, uid: &str, has_worked: bool) -> u32 {
        let mut idle_rounds = self.idle_rounds.lock();
        let count = idle_rounds.entry(Uid::of(uid)).or_default();
        *count = if has_worked {
            0
        } else {
            count.saturating_add(1)
        };
        *count
    }

    /// Whether this text differs from the last report. A lasting problem is checked repeatedly and
    /// reported once.
    pub(crate) fn is_news(&self, uid: &str, text: &str) -> bool {
        let text = Uid::of(text);
        let before = self.reports.lock().insert(Uid::of(uid), text);
        before != Some(text)
    }

    /// Drops the history of an IPUPartition.
    pub(crate) fn forget(&self, uid: &str) {
        let uid = Uid::of(uid);
        self.idle_rounds.lock().remove(&uid);
        self.reports.lock().remove(&uid);
    }

    /// Drops the histories of all other IPUPartitions. Some vanish without a reconcile that sees
    /// it.
    pub(crate) fn retain(&self, existing: &HashSet<Uid>) {
        let mut idle_rounds = self.idle_rounds.lock();
        idle_rounds.retain(|uid, _| existing.contains(uid));
        self.reports.lock().retain(|uid, _| existing.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconciles_that_write_nothing_are_counted_in_a_row() {
        let history = ReconcileHistory::default();
        let counts = [false, false, true, false].map(|worked| history.count_idle("a", worked));
        assert_eq!(counts, [1, 2, 0, 1]);
        assert_eq!(history.count_idle("b", false), 1);
    }

    #[test]
    fn a_lasting_problem_is_reported_once() {
        let history = ReconcileHistory::default();
        let texts = ["full", "full", "empty", "full"];
        let news = texts.map(|text| history.is_news("a", text));
        assert_eq!(news, [true, false, true, true]);
    }

    #[test]
    fn nothing_is_kept_of_partitions_that_are_gone() {
        let history = ReconcileHistory::default();
        for uid in ["a", "b", "c"] {
            history.count_idle(uid, false);
            history.is_news(uid, "full");
        }
        history.forget("a");
        history.retain(&HashSet::from([Uid::of("b")]));
        let left: Vec<Uid> = history.idle_rounds.lock().keys().copied().collect();
        assert_eq!(left, [Uid::of("b")]);
        let left: Vec<Uid> = history.reports.lock().keys().copied().collect();
        assert_eq!(left, [Uid::of("b")]);
    }
}
