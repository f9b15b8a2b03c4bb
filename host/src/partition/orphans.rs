//! Pure: which partitions on the controllers belong to this installation and to nobody.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::record;
use crate::api::ipupartition::IPUPartition;
use crate::names;

/// A partition on a controller: the controller's name and the id.
pub type Place = (String, String);

/// What a sweep found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// To be removed now, once no live Pod uses them.
    pub due: Vec<Place>,
    /// Seen without an owner, and since when; the next sweep looks at them again.
    pub suspects: BTreeMap<Place, Timestamp>,
}

/// Tells orphans from the rest.
///
/// `found` must have been listed before `held`: an id is written down before a controller hears of
/// it, so that whatever is found and wanted stands in a list that was read later. The grace covers
/// objects that are on their way into the API server by another road (a restored backup).
pub fn tell(
    found: &[Place],
    held: &BTreeSet<String>,
    suspects: &BTreeMap<Place, Timestamp>,
    installation: &str,
    grace: SignedDuration,
    now: Timestamp,
) -> Orphans {
    let mut orphans = Orphans::default();
    for place in found {
        let id = &place.1;
        if held.contains(id) || !names::is_of_installation(id, installation) {
            continue;
        }
        let since = *suspects.get(place).unwrap_or(&now);
        if suspects.contains_key(place) && now.duration_since(since) >= grace {
            orphans.due.push(place.clone());
        }
        orphans.suspects.insert(place.clone(), since);
    }
    orphans
}

/// Every id that some IPUPartition still answers for.
pub fn held<'a>(partitions: impl IntoIterator<Item = &'a IPUPartition>) -> BTreeSet<String> {
    partitions
        .into_iter()
        .filter_map(|partition| partition.status.as_ref())
        .flat_map(|status| &status.attempts)
        .filter(|attempt| record::is_held(attempt))
        .map(|attempt| attempt.id.clone())
        .collect()
}
