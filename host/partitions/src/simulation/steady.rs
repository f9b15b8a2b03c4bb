//! Once the trouble is over, the replicas do not write one status after the other without end: two that
//! act at the same time, each of which puts right what the other wrote, would.

use std::collections::BTreeMap;

use ipu_api::ipupartition::IPUPartition;

use super::api_server::Key;
use super::invariants::{STEADY, demand};
use super::world::World;

/// For so many milliseconds the writes are followed.
const FOLLOWED: u64 = 10 * 60_000;

/// Statuses of one object while nobody comes, goes, wants something else or is given a partition. Those
/// who write in answer to each other write hundreds.
const WRITES_MAX: usize = 20;

impl World {
    /// What is wanted is served: from now on, what is written comes to an end each time.
    pub(super) fn stays_steady(&mut self) {
        let from = self.api.log().len();
        let end = self.event_queue.now() + FOLLOWED;
        self.run_until(end);
        let mut known: BTreeMap<Key, &IPUPartition> = BTreeMap::new();
        let mut written: BTreeMap<Key, Vec<&IPUPartition>> = BTreeMap::new();
        for change in &self.api.log()[from..] {
            let now = change.now.as_ref().map(|stored| stored.object.as_ref());
            let before = match now {
                Some(now) => known.insert(change.key, now),
                None => known.remove(&change.key),
            };
            let (Some(now), false) = (now, concerns_others(before, now)) else {
                written.clear();
                continue;
            };
            let of_it = written.entry(change.key).or_default();
            of_it.push(now);
            demand(of_it.len() <= WRITES_MAX, STEADY, || {
                let last = of_it[WRITES_MAX - 5..].iter();
                let last: Vec<_> = last.map(|object| &object.status).collect();
                format!("{}: {last:#?}", self.name(change.key))
            });
        }
    }
}

/// Whether others may have to tell something else, too, after this change of an object.
fn concerns_others(before: Option<&IPUPartition>, now: Option<&IPUPartition>) -> bool {
    let (Some(before), Some(now)) = (before, now) else {
        return true;
    };
    let assigned = |object: &IPUPartition| {
        let status = object.status.as_ref();
        status.map(|status| (status.generation, status.partition_id.clone()))
    };
    before.spec != now.spec
        || before.metadata.deletion_timestamp != now.metadata.deletion_timestamp
        || assigned(before) != assigned(now)
}
