//! After the last fault, the replicas do not write one status after the other without end, as two
//! active ones would that correct each other's writes.

use std::collections::BTreeMap;

use ipu_api::ipupartition::IPUPartition;

use super::api_server::Key;
use super::invariants::{STEADY, demand};
use super::job_watches::Kind;
use super::world::World;

/// Time, in milliseconds, for which writes are counted.
const FOLLOWED: u64 = 10 * 60_000;

/// Bound on the seconds in which a status of one object is written while no request is created,
/// changed, deleted or served. Replicas that respond to each other's writes without end write in
/// hundreds of them. Two active ones do so for a moment where the time of a reservation begins: one
/// has decided again, and the other one has not yet.
const SECONDS_MAX: usize = 20;

impl World {
    /// All requests are served: from now on, each series of writes must end.
    pub(super) fn stays_steady(&mut self) {
        let from = self.api.log().len();
        let from_job = self.changes_of(Kind::Jobs);
        let end = self.event_queue.now() + FOLLOWED;
        // The changes of the log at the end of each second.
        let mut ends = Vec::new();
        while self.event_queue.now() < end {
            self.run_until(self.event_queue.now() + 1_000);
            ends.push(self.api.log().len());
        }
        self.check_steady_jobs(from_job);
        let mut known: BTreeMap<Key, &IPUPartition> = BTreeMap::new();
        let mut written: BTreeMap<Key, BTreeMap<usize, &IPUPartition>> = BTreeMap::new();
        for (index, change) in self.api.log().iter().enumerate().skip(from) {
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
            of_it.insert(ends.partition_point(|end| *end <= index), now);
            demand(of_it.len() <= SECONDS_MAX, STEADY, || {
                let last = of_it.values().rev().take(5);
                let last: Vec<_> = last.map(|object| &object.status).collect();
                format!("{}: {last:#?}", self.name(change.key))
            });
        }
    }
}

/// Whether this change of an object may change the statuses of others.
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
