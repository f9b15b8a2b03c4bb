//! Pure: objects of other releases. The cache stores only the partitions that they certainly or
//! possibly hold on V-IPU controllers.

use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_placement::allocations::{self, Allocation};
use kube::ResourceExt;

use super::{Cache, Known, word};

/// An object of another release.
#[derive(Debug)]
pub(super) struct Other {
    /// Its UID.
    pub uid: Uid,
    /// Its allocations.
    pub held: Box<[Allocation]>,
    /// The partitions of its attempts with an unknown outcome.
    pub requested: Box<[Allocation]>,
}

impl Cache {
    /// Applies an object of another release. The cache stores only its allocations, which are not
    /// free here either, and its requests.
    pub fn apply_other(&mut self, partition: &IPUPartition) {
        let held = allocations::allocations(partition, |name| word(&mut self.words, name));
        let requested = allocations::requested(partition, |name| word(&mut self.words, name));
        let is_empty = held.is_empty() && requested.is_empty();
        let uid = Uid::of(partition.metadata.uid.as_deref().unwrap_or_default());
        let other = Other {
            uid,
            held,
            requested,
        };
        let other = (!is_empty).then(|| Known::OfOther(Box::new(other)));
        let change = self.store.update(partition.name_any().into(), other);
        self.account(change);
    }

    /// The requests of all objects, including those of other releases, with an unknown result: each
    /// with its controller and its IPUs. None of them is an allocation.
    pub fn unsettled(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.store.objects().values().flat_map(|known| {
            let (held, requested) = match known {
                Known::Mine(kept) => (&kept.brief.held, &kept.brief.requested),
                Known::OfOther(other) => (&other.held, &other.requested),
            };
            // A partition that Graphcore's operator may have created is an allocation already.
            requested.iter().filter(move |one| !held.contains(one))
        });
        all.map(|one| (&*one.controller, one.ipus))
    }
}
