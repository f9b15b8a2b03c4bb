//! The IPUPartitions that may leave their controllers after a change.

use std::sync::Arc;

use ipu_placement::drain;

use crate::leader::Context;
use crate::store::Brief;

/// IPUPartitions on a drained controller that are evaluated after a release of IPUs. Each reads the
/// queue and the capacity of all controllers. The others are evaluated periodically, and when their
/// turn comes.
const NEXT_TO_MOVE: usize = 16;

/// The IPUPartitions that may be the next to leave drained controllers, after a release of IPUs.
pub(super) fn next_to_move(context: &Context) -> Vec<Arc<str>> {
    let cordons = context.pool.cordons();
    let draining = cordons
        .keys()
        .filter(|name| drain::is_draining(name, &cordons));
    let next = draining.flat_map(|controller| {
        let there = context.queue_state.on_drained(&context.watched, controller);
        let names = drain::next_to_leave(&there, NEXT_TO_MOVE).into_iter();
        names.map(Arc::from).collect::<Vec<_>>()
    });
    next.collect()
}

/// The IPUPartitions with partitions on drained, gone and renamed controllers.
pub(super) fn partitions_to_move(context: &Context) -> Vec<Arc<str>> {
    let known = context.pool.registry().known();
    let (cordons, departed) = (&known.cordons, &known.departed);
    let is_other = |name: &str| {
        drain::is_draining(name, cordons)
            || departed.gone.contains(name)
            || departed.renamed.contains_key(name)
    };
    let others: Vec<Arc<str>> = context.watched.read(|cache| {
        let held = cache.allocations().controllers();
        held.filter(|name| is_other(name)).map(Into::into).collect()
    });
    if others.is_empty() {
        return Vec::new();
    }
    let is_there = |one: &Brief| {
        one.held
            .iter()
            .any(|held| others.contains(&held.controller))
    };
    context.watched.read(|cache| cache.names_of(is_there))
}
