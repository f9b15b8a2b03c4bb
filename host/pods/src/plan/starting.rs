//! Pure: the next step of a Pod that has its partition and may not be able to start.

use std::time::Duration;

use ipu_api::pod_request::PodRequest;
use jiff::SignedDuration;

use super::{Circumstances, Plan, Step};
use crate::partition::PartitionRef;
use crate::pod::NativePod;
use crate::report::{self, NOT_STARTING};

/// Decides the next step for a Pod with this partition.
pub(super) fn plan(pod: &NativePod, partition_ref: &PartitionRef, around: &Circumstances) -> Plan {
    let ready = report::ready(partition_ref);
    // The condition is True first, so that its transition shows the time since which the Pod cannot start.
    let Some(obstacle) = pod.obstacle.as_ref().filter(|_| has_been_ready(pod)) else {
        return Plan::report(ready);
    };
    // The eviction of a Pod that shares a partition releases no IPUs.
    let is_new = matches!(pod.request, Ok(PodRequest::New(_)));
    let timeout = around
        .start_timeout
        .filter(|_| pod.has_controller && is_new);
    let report = report::not_starting(obstacle, timeout);
    let left = timeout.map(|timeout| remaining(pod, timeout, around));
    let is_over = left.is_some_and(|left| left.is_zero());
    Plan {
        step: is_over.then(|| Step::Evict(report.disruption())),
        report: Some(report),
        requeue: left,
    }
}

/// Whether the condition of a Pod says that its partition is ready, or that it cannot start.
fn has_been_ready(pod: &NativePod) -> bool {
    let condition = pod.condition.as_ref();
    condition.is_some_and(|condition| {
        condition.status == "True" || condition.reason.as_deref() == Some(NOT_STARTING)
    })
}

/// Returns the rest of the time in which a Pod may start.
fn remaining(pod: &NativePod, timeout: Duration, around: &Circumstances) -> Duration {
    let condition = pod.condition.as_ref();
    let condition = condition.filter(|condition| condition.reason.as_deref() == Some(NOT_STARTING));
    let since = condition.and_then(|condition| condition.last_transition_time.as_ref());
    let waited = since.map_or(SignedDuration::ZERO, |since| {
        around.now.duration_since(since.0)
    });
    timeout.saturating_sub(Duration::try_from(waited).unwrap_or_default())
}
