//! Pure: finds partitions on the controllers that a release of this cluster created and no
//! IPUPartition lists.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::naming::Identity;

/// A partition on a controller: the name of the controller, and the id.
pub type RemotePartition = (String, String);

/// Partitions without an owner, and since when by a monotonic clock: the clock of the machine may
/// be set back by an hour, and each partition would stay for as long.
pub type Suspects = BTreeMap<RemotePartition, Duration>;

/// The result of a sweep.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Partitions to remove now, if no live Pod uses them.
    pub due: Vec<RemotePartition>,
    /// Partitions without an owner, which the next sweep checks again.
    pub suspects: Suspects,
}

/// Finds the orphans among the partitions that controllers listed: names of controllers, and ids.
///
/// The controllers must have been listed before the IPUPartitions that `is_held` knows: an id is
/// recorded before its partition is requested, so an IPUPartition that was listed later contains
/// the id of every owned partition. The grace period covers objects that return to the API server
/// in another way (a restored backup).
pub fn find_orphans<'a>(
    found: impl IntoIterator<Item = (&'a str, &'a str)>,
    is_held: impl Fn(&str) -> bool,
    suspects: &Suspects,
    identity: &Identity,
    grace: Duration,
    now: Duration,
) -> Orphans {
    let mut orphans = Orphans::default();
    for (controller, id) in found {
        if is_held(id) || !identity.marks(id) {
            continue;
        }
        let partition = (controller.to_owned(), id.to_owned());
        let since = *suspects.get(&partition).unwrap_or(&now);
        if suspects.contains_key(&partition) && now.saturating_sub(since) >= grace {
            orphans.due.push(partition.clone());
        }
        orphans.suspects.insert(partition, since);
    }
    orphans
}

/// Returns the time until the next sweep: the grace period if a partition without an owner may be
/// removed then, otherwise the whole period. Nothing is due for partitions `in_use` before their
/// Pods have ended, which may take days.
pub fn until_next(
    suspects: &Suspects,
    in_use: &BTreeSet<RemotePartition>,
    period: Duration,
    grace: Duration,
) -> Duration {
    if suspects.keys().all(|suspect| in_use.contains(suspect)) {
        period
    } else {
        grace
    }
}

/// Removes the partitions that this IPUPartition lists from the suspects, between two sweeps: a
/// partition that had an owner for a moment gets a new grace period.
pub fn clear_owned(suspects: &mut Suspects, partition: &IPUPartition) {
    if !suspects.is_empty() {
        let held = held([partition]);
        suspects.retain(|(_, id), _| !held.contains(id));
    }
}

/// Names of controllers that left the list while an IPUPartition still holds something on them.
/// They are swept for as long: after that, their addresses are unknown.
pub fn left_behind<N: Ord>(
    holding: impl IntoIterator<Item = N>,
    is_known: impl Fn(&N) -> bool,
) -> BTreeSet<N> {
    let names = holding.into_iter();
    names.filter(|name| !is_known(name)).collect()
}

/// Every id that an IPUPartition still lists as held.
pub fn held<'a>(partitions: impl IntoIterator<Item = &'a IPUPartition>) -> BTreeSet<String> {
    partitions
        .into_iter()
        .filter_map(|partition| partition.status.as_ref())
        .flat_map(|status| &status.attempts)
        .filter(|attempt| attempt.is_held())
        .map(|attempt| attempt.id.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[test]
    fn partitions_in_use_do_not_shorten_the_period() {
        let period = Duration::from_mins(2);
        let partition = |id: &str| ("pod1:8090".to_owned(), id.to_owned());
        let suspects: Suspects = ["p-1", "p-2"]
            .map(|id| (partition(id), Duration::ZERO))
            .into();
        for (in_use, expected) in [
            (vec![], GRACE),
            (vec!["p-1"], GRACE),
            (vec!["p-1", "p-2"], period),
        ] {
            let in_use: BTreeSet<_> = in_use.into_iter().map(partition).collect();
            let pause = until_next(&suspects, &in_use, period, GRACE);
            assert_eq!(pause, expected, "{in_use:?}");
        }
        let none = until_next(&Suspects::new(), &BTreeSet::new(), period, GRACE);
        assert_eq!(none, period);
    }

    #[test]
    fn what_was_owned_between_two_sweeps_has_a_new_grace() {
        let identity = Identity::new("cluster", "here");
        let id = format!("p-mnist-{}-0123456789", identity.tag());
        let found = [("pod1:8090".to_owned(), id.clone())];
        let sweep = |suspects: &Suspects, second| {
            let found = found.iter().map(|(name, id)| (name.as_str(), id.as_str()));
            let now = Duration::from_secs(second);
            find_orphans(found, |_| false, suspects, &identity, GRACE, now)
        };
        let mut suspects = sweep(&Suspects::new(), 0).suspects;
        assert_eq!(sweep(&suspects, 30).due, found, "nobody has owned it since");

        let owner = |id: &str, outcome: &str| -> IPUPartition {
            let controller = json!({
                "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
            });
            serde_json::from_value(json!({
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition", "metadata": {},
                "spec": {
                    "owner": {"apiVersion": "v1", "kind": "K", "namespace": "n", "name": "a", "uid": "u"},
                    "slot": 0, "ipus": 4, "gcds": 1,
                },
                "status": {"attempts": [{"controller": controller, "id": id, "outcome": outcome}]},
            }))
            .unwrap()
        };
        clear_owned(&mut suspects, &owner("p-other", "created"));
        clear_owned(&mut suspects, &owner(&id, "removed"));
        assert_eq!(suspects.len(), 1);
        clear_owned(&mut suspects, &owner(&id, "created"));
        let again = sweep(&suspects, 30);
        assert_eq!(again.due, []);
        assert_eq!(sweep(&again.suspects, 60).due, found);
    }
}
