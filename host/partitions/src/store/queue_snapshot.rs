//! The queue for readers that decide nothing: they share entries that are at most a second old.
//!
//! All requests are read under the lock of the cache, for which every reconcile waits. Any client
//! may call `/query` a hundred times a second.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::uid::Uid;
use ipu_placement::queue::QueueEntry;
use parking_lot::Mutex;

/// Maximum age of the entries.
const AGE: Duration = Duration::from_secs(1);

/// Age at which the leader's list of stalled requests expires: it makes a new one about every ten
/// seconds.
const STALLED_AGE: Duration = Duration::from_mins(1);

/// The queue, as it was last read.
#[derive(Debug, Default)]
pub(crate) struct SharedQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: Option<(Instant, Arc<[QueueEntry]>)>,
    /// The UIDs of stalled requests, and when the leader noted them.
    stalled: Option<(Instant, HashSet<Uid>)>,
}

impl SharedQueue {
    /// The waiting requests, in order. `read` reads them if those of the last time are too old.
    pub(crate) fn entries(&self, read: impl FnOnce() -> Vec<QueueEntry>) -> Arc<[QueueEntry]> {
        let mut state = self.state.lock();
        if let Some((at, entries)) = &state.entries
            && at.elapsed() < AGE
        {
            return entries.clone();
        }
        let mut entries = read();
        if let Some((at, stalled)) = &state.stalled
            && at.elapsed() < STALLED_AGE
        {
            for entry in &mut entries {
                entry.is_stalled = stalled.contains(&entry.uid);
            }
        }
        let entries: Arc<[QueueEntry]> = entries.into();
        state.entries = Some((Instant::now(), entries.clone()));
        entries
    }

    /// Notes which requests are stalled. Only the leader knows it, which evaluates them.
    pub(crate) fn set_stalled(&self, stalled: HashSet<Uid>) {
        self.state.lock().stalled = Some((Instant::now(), stalled));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use ipu_placement::backfill;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn readers_share_what_was_read_and_the_leader_marks_what_is_stalled() {
        let (shared, reads) = (SharedQueue::default(), Cell::new(0));
        let entries = || {
            let read = || {
                reads.set(reads.get() + 1);
                ["a", "b"].map(request).to_vec()
            };
            let entries = shared.entries(read);
            entries.iter().map(|one| one.is_stalled).collect::<Vec<_>>()
        };
        shared.set_stalled(HashSet::from([Uid::of("b")]));
        for _ in 0..100 {
            assert_eq!(entries(), [false, true]);
        }
        assert!(reads.get() < 100, "{} reads", reads.get());
    }

    fn request(uid: &str) -> QueueEntry {
        backfill::new_request(4, 1, BTreeMap::new(), Timestamp::UNIX_EPOCH)
            .with(|request| request.uid = Uid::of(uid))
    }
}
