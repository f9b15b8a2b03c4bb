//! One decision on the controller of a partition: what placement finds first, and then the guest.

use std::sync::Arc;

use ipu_api::guest::placement::{Decision, Placed};
use ipu_api::ipupartition::IPUPartition;
use ipu_placement::cycle::Pass;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::guest_call::values::{self, shortened};
use ipu_placement::guest_call::{Placement, Request};
use ipu_placement::requests::Turn;
use ipu_policies::namespace_usage::counter::Reservation;
use ipu_runtime::{clock, events};
use kube::ResourceExt;

use crate::leader::Context;
use crate::reconcile::siblings;

/// The partition of a turn. `None`: it is gone.
pub(super) fn partition(context: &Context, turn: &Turn) -> Option<Arc<IPUPartition>> {
    context.watched.read(|cache| {
        // It may have been deleted since the reconcile read it.
        if !cache.contains(turn.name(), turn.uid) {
            return None;
        }
        let newer = turn.partition.clone();
        newer.or_else(|| cache.readable(turn.name()))
    })
}

/// Decides on this partition: a controller is chosen by its recent capacity. Returns also whether
/// the guest denied the partition free capacity.
pub(super) async fn decide_by_recent(
    context: &Context,
    pass: &mut Pass,
    partition: &IPUPartition,
) -> (PlacementDecision, bool) {
    loop {
        let decided = decide(context, pass, partition).await;
        let PlacementDecision::Try(controller, _) = &decided.0 else {
            return decided;
        };
        if pass.is_confirmed(&controller.name) {
            return decided;
        }
        let view = context.pool.recent_view(controller).await;
        if !pass.confirm(view) {
            return decided;
        }
    }
}

/// Asks the guest for a controller for this partition. Returns also whether it denied the partition
/// free capacity.
async fn decide(
    context: &Context,
    pass: &Pass,
    partition: &IPUPartition,
) -> (PlacementDecision, bool) {
    // A partition without a controller has no reservation.
    context
        .namespaces
        .release(&partition.uid().unwrap_or_default());
    let now = clock::now();
    let held = siblings::held(context, partition);
    let request = match pass.prepare(partition, held, now) {
        Placement::Decided(answer) => return (answer, false),
        Placement::Ask(request) => request,
    };
    let (placed, is_denied) = ask(context, partition, &request, held).await;
    if let Some(why) = &placed.overruled {
        report_overruled(context, partition, why);
    }
    let by = values::decided_by(&placed);
    let answer = request.conclude(placed.decision, by, &context.pool.controllers());
    if matches!(answer, PlacementDecision::Try(..)) {
        context.namespaces.reserve(Reservation::of(partition));
    }
    (answer, is_denied)
}

/// Calls the placement guest. Returns also whether it denies a controller if the serial walk
/// chooses one.
async fn ask(
    context: &Context,
    partition: &IPUPartition,
    asked: &Request,
    held: u32,
) -> (Placed, bool) {
    let uid = partition.uid().unwrap_or_default();
    let namespace = &partition.spec.owner.namespace;
    let namespaces = &context.namespaces;
    let known = (
        namespaces.context(namespace, &uid),
        namespaces.others(namespace),
    );
    let waiting = asked.waiting.clone();
    let request = values::partition_request(partition, known, waiting, held, clock::now());
    let (views, tried) = (asked.views(), &asked.tried);
    let placed = context.guests.place(&request, views, tried).await;
    let is_denied = !is_try(&placed.decision)
        && is_try(&ipu_placement::serial_walk::serial_walk(
            &request, views, tried,
        ));
    (placed, is_denied)
}

fn is_try(decision: &Decision) -> bool {
    matches!(decision, Decision::Try(..))
}

fn report_overruled(context: &Context, partition: &IPUPartition, why: &str) {
    tracing::warn!(
        partition = %partition.name_any(),
        why,
        "the guest of the placement policy was overruled"
    );
    let uid = partition.uid().unwrap_or_default();
    if context.history.is_news(&uid, why) {
        let reason = "PolicyOverruled";
        let event = events::warning(reason, reason, shortened(why));
        context.publish(partition, event);
    }
}
