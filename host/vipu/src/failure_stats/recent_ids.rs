//! Pure: what was last observed of partitions, for the ids that were observed last.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// A value for each id, in the order in which they were observed last.
#[derive(Clone, Debug)]
pub(super) struct RecentIds<T> {
    values: BTreeMap<String, (Timestamp, T)>,
    order: BTreeSet<(Timestamp, String)>,
}

impl<T> Default for RecentIds<T> {
    fn default() -> Self {
        Self {
            values: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<T> RecentIds<T> {
    /// Keeps a value that was observed now, and returns the earlier one. Of more than `most` ids,
    /// that which was observed longest ago is dropped: another process may have removed the
    /// partition, and then nobody observes it again.
    pub(super) fn observe(&mut self, id: &str, value: T, now: Timestamp, most: usize) -> Option<T> {
        let before = self.values.insert(id.to_owned(), (now, value));
        if let Some((earlier, _)) = &before {
            self.order.remove(&(*earlier, id.to_owned()));
        }
        self.order.insert((now, id.to_owned()));
        if self.values.len() > most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.values.remove(&oldest);
        }
        before.map(|(_, value)| value)
    }

    /// Forgets an id.
    pub(super) fn remove(&mut self, id: &str) {
        if let Some((observed, _)) = self.values.remove(id) {
            self.order.remove(&(observed, id.to_owned()));
        }
    }
}
