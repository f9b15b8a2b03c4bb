//! Pure: the largest new request that fits on each V-IPU controller, after the waiting requests.

use std::collections::BTreeMap;

use ipu_api::guest::placement::ControllerView;
use ipu_placement::backfill::{self, Assigned};
use ipu_placement::queue::QueueEntry;
use jiff::{SignedDuration, Timestamp};

/// The largest new request that fits on a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fit {
    /// IPUs of the largest partition. 0: none, also if the controller does not answer or no node
    /// reaches it.
    pub largest: u32,
    /// The request that its capacity is reserved for.
    pub reserved_for: Option<String>,
}

/// The queue that a new request comes after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue<'a> {
    /// The waiting requests, in order.
    pub entries: &'a [QueueEntry],
    /// Partitions of requests that are assigned to a controller, and not requested there yet.
    pub assigned: &'a [Assigned],
    /// Waiting time after which capacity is reserved for a request.
    pub limit: SignedDuration,
}

/// The largest new request that fits on each of these uncordoned controllers, by name.
pub(super) fn fits(
    open: Vec<ControllerView>,
    queue: Queue<'_>,
    now: Timestamp,
) -> BTreeMap<String, Fit> {
    let me = backfill::new_request(1, 1, BTreeMap::new(), now);
    let Queue {
        entries,
        assigned,
        limit,
    } = queue;
    let capacity = backfill::capacity_for(&me, entries, assigned, 0, open, limit, now);
    let mut reserved = capacity.reserved;
    let views = capacity.views.into_iter();
    views
        .map(|view| {
            let is_usable = view.unreachable.is_none() && view.has_nodes;
            let fit = Fit {
                largest: if is_usable { view.largest_free } else { 0 },
                reserved_for: reserved.remove(&view.name),
            };
            (view.name, fit)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ipu_api::uid::Uid;
    use ipu_placement::samples::view;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    /// A request that has waited for so many minutes.
    fn waiting(ipus: u32, minutes: i64) -> QueueEntry {
        let created = now() - SignedDuration::from_mins(minutes);
        let entry = backfill::new_request(ipus, 1, BTreeMap::new(), created);
        let mut entry = entry.with(|request| {
            request.owner = Uid::of("uid");
            "default/large".clone_into(&mut request.owner_name);
        });
        entry.position.created = created;
        entry
    }

    type Fits = Vec<(u32, Option<String>)>;

    fn largest(entry: QueueEntry, assigned: &[Assigned]) -> Fits {
        let mut no_nodes = view("pod3", 16, 0);
        no_nodes.has_nodes = false;
        let queue = Queue {
            entries: &[entry],
            assigned,
            limit: SignedDuration::from_mins(10),
        };
        let fits = fits(
            vec![view("pod1", 16, 12), view("pod2", 16, 8), no_nodes],
            queue,
            now(),
        );
        let fits = fits.into_values();
        fits.map(|fit| (fit.largest, fit.reserved_for)).collect()
    }

    #[test]
    fn what_is_reserved_does_not_fit() {
        let free: Fits = vec![(4, None), (8, None), (0, None)];
        assert_eq!(largest(waiting(16, 5), &[]), free);
        let whom = "default/large (16 IPUs), which has waited since 2026-01-01T11:48:00Z";
        let reserved: Fits = vec![(4, None), (0, Some(whom.to_owned())), (0, None)];
        assert_eq!(largest(waiting(16, 12), &[]), reserved);
        let claimed = [Assigned {
            controller: "pod2".to_owned(),
            ipus: 4,
            count: 1,
        }];
        let left: Fits = vec![(4, None), (4, None), (0, None)];
        assert_eq!(largest(waiting(16, 5), &claimed), left);
    }
}
