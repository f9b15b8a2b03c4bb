//! Pure: the next step of a Pod that is being deleted. Its program may still run, so the partition
//! goes with the Pod.
//!
//! Nothing ends a Pod on an unreachable node. The operator deletes it by force: after the removal
//! of the partition on its V-IPU controller, a program that still runs can use nothing of it.

use std::time::Duration;

use super::{Circumstances, Plan, Step};
use crate::pod::{NativePod, Termination};
use crate::report;

/// Delay of the next look at the node of a Pod that does not end.
const NODE: Duration = Duration::from_secs(15);

/// Delay of the first look, from the end of the grace period. Times of objects are whole seconds.
const OVERDUE: Duration = Duration::from_secs(1);

/// Decides the next step for a terminating Pod.
pub(super) fn plan(pod: &NativePod, termination: &Termination, around: &Circumstances) -> Plan {
    let Some(node) = &termination.node else {
        return Plan::default();
    };
    if pod.partition_id.is_none() || around.lost_node.is_none() {
        return Plan::default();
    }
    let Some(since) = around.node_lost_since else {
        let left = Duration::try_from(termination.due.duration_since(around.now));
        return Plan {
            requeue: Some(left.map_or(NODE, |left| left + OVERDUE)),
            ..Plan::default()
        };
    };
    Plan {
        step: (!pod.is_of_stateful_set).then_some(Step::ForceDelete),
        report: Some(report::node_lost(node, since, pod.is_of_stateful_set)),
        requeue: Some(NODE),
    }
}
