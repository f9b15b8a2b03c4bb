//! Evaluates the eviction of a partition, and what its owner holds.

use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_placement::drain::{self, EvictionState, RequiredData, Sibling};
use ipu_placement::{cycle, queue};
use ipu_runtime::clock;
use kube::ResourceExt;

use crate::leader::Context;

/// Evaluates the eviction of this partition, and reads no more data than it needs.
pub(crate) async fn eviction(context: &Context, partition: &IPUPartition) -> EvictionState {
    let cordons = context.pool.cordons();
    let name = match drain::required_data(partition, &cordons) {
        RequiredData::Nothing => return EvictionState::default(),
        RequiredData::Siblings => {
            return drain::of_owner(partition, &siblings(context, partition));
        }
        RequiredData::Everything(name) => name,
    };
    let (now, watched) = (clock::now(), &context.watched);
    let owner = Uid::of(&partition.spec.owner.uid);
    let siblings = watched.read(|cache| cache.some(|one| one.is_of(owner)));
    let mut found = context.pool.candidates().await;
    // Its Pods would find no node there.
    let unsuited = found.unsuited(&queue::entry(partition, now));
    found.open.retain(|view| !unsuited.contains_key(&view.name));
    let open = found.open;
    // The queue is read again: a partition that has just left the controller waits in it, and needs
    // the capacity that it left for.
    let (asked, mut entries) = watched.read(|cache| {
        let asked = cache.briefs().flat_map(|(one, _)| &one.requested);
        let asked: Vec<_> = asked.cloned().collect();
        (asked, cache.queue(now))
    });
    context.queue_state.update(&mut entries, watched);
    let limit = context.settings.backfill_limit;
    let asked = asked.iter().map(|one| (&*one.controller, one.ipus));
    let open = drain::capacity_after_queue(partition, &entries, asked, open, limit, now);
    // Cached data are enough: a partition that has left since then still leaves first.
    let there = context.queue_state.on_drained(watched, name);
    let is_other =
        |found: &&Arc<IPUPartition>| siblings.iter().all(|sibling| sibling.uid() != found.uid());
    let others = siblings.iter().chain(there.iter().filter(is_other));
    drain::of(partition, others.map(Arc::as_ref), &cordons, &open, now)
}

/// Partitions that its owner has or is getting, or that have a controller; 0 without a gang.
pub(crate) fn held(context: &Context, partition: &IPUPartition) -> u32 {
    if partition.spec.options.gang_size.is_none() {
        return 0;
    }
    let owner = Uid::of(&partition.spec.owner.uid);
    let slots = context.queue_state.requests().placed_slots(owner);
    cycle::held(partition, siblings(context, partition), &slots)
}

/// All readable partitions of its owner, with this one.
fn siblings(context: &Context, partition: &IPUPartition) -> Vec<Sibling> {
    let owner = Uid::of(&partition.spec.owner.uid);
    context.watched.read(|cache| {
        let all = cache.briefs().map(|(one, _)| one);
        let siblings = all.filter(|one| one.is_of(owner));
        siblings.map(|one| one.sibling).collect()
    })
}
