//! Pure: which partitions on the controllers were given by a release of this cluster and belong to nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::naming::Identity;

/// A partition on a controller: the controller's name and the id.
pub type Place = (String, String);

/// Partitions without an owner, and since when, by a clock that nobody sets: that of the machine may be set
/// back by an hour, and each of them would stay for as long.
pub type Suspects = BTreeMap<Place, Duration>;

/// What a sweep found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// To be removed now, once no live Pod uses them.
    pub due: Vec<Place>,
    /// Seen without an owner, and since when; the next sweep looks at them again.
    pub suspects: Suspects,
}

/// Tells orphans from the rest, in what was found: names of controllers, and ids.
///
/// It must have been found before the ids that `is_held` knows were listed: an id is written down before
/// a controller hears of it, so that whatever is found and wanted stands in a list that was read later.
/// The grace covers objects that are on their way into the API server by another road (a restored backup).
pub fn tell<'a>(
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
        let place = (controller.to_owned(), id.to_owned());
        let since = *suspects.get(&place).unwrap_or(&now);
        if suspects.contains_key(&place) && now.saturating_sub(since) >= grace {
            orphans.due.push(place.clone());
        }
        orphans.suspects.insert(place, since);
    }
    orphans
}

/// Takes from the suspects what this IPUPartition answers for, as it is seen between two sweeps: what
/// has an owner for a moment has a grace of its own once it has none again.
pub fn spare(suspects: &mut Suspects, partition: &IPUPartition) {
    if !suspects.is_empty() {
        let held = held([partition]);
        suspects.retain(|(_, id), _| !held.contains(id));
    }
}

/// The controllers, by name, that are not in the list and on which an IPUPartition still holds something.
/// They are swept as long as one does: after that, nobody knows their addresses any more.
pub fn left_behind<N: Ord>(
    holding: impl IntoIterator<Item = N>,
    is_known: impl Fn(&N) -> bool,
) -> BTreeSet<N> {
    let names = holding.into_iter();
    names.filter(|name| !is_known(name)).collect()
}

/// Every id that some IPUPartition still answers for.
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
    fn what_was_owned_between_two_sweeps_has_a_new_grace() {
        let identity = Identity::new("cluster", "here");
        let id = format!("p-mnist-{}-0123456789", identity.tag());
        let found = [("pod1:8090".to_owned(), id.clone())];
        let sweep = |suspects: &Suspects, second| {
            let found = found.iter().map(|(name, id)| (name.as_str(), id.as_str()));
            let now = Duration::from_secs(second);
            tell(found, |_| false, suspects, &identity, GRACE, now)
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
        spare(&mut suspects, &owner("p-other", "created"));
        spare(&mut suspects, &owner(&id, "removed"));
        assert_eq!(suspects.len(), 1);
        spare(&mut suspects, &owner(&id, "created"));
        let again = sweep(&suspects, 30);
        assert_eq!(again.due, []);
        assert_eq!(sweep(&again.suspects, 60).due, found);
    }
}
