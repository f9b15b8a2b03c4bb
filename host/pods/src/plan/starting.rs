//! Pure: the next step of a Pod that has its partition and may not be able to start.

use std::time::Duration;

use ipu_api::pod_request::PodRequest;
use ipu_runtime::pod_start::StartState;
use ipu_runtime::pod_start::node_report::RETRY;
use jiff::SignedDuration;

use super::{Circumstances, Plan, Step};
use crate::partition::PartitionRef;
use crate::pod::NativePod;
use crate::report::{self, NOT_STARTING, Remedy};

/// Decides the next step for a Pod with this partition.
pub(super) fn plan(pod: &NativePod, partition_ref: &PartitionRef, around: &Circumstances) -> Plan {
    let start = &pod.start;
    // No watch reports that its node fails to prepare it.
    let retry = start.preparing_since.map(|_| RETRY);
    let pulls_again = start.state == StartState::PullingAgain;
    let obstacle = start.obstacle.as_ref().filter(|_| match start.state {
        // An init container that runs may take hours, and what waits for it waits in turn.
        StartState::Initializing => false,
        // If the pull fails too, the Pod could not start all the time.
        StartState::PullingAgain => is_reported(pod),
        _ => has_been_ready(pod),
    });
    let Some(obstacle) = obstacle else {
        // The condition is True first, so that its transition shows the time since which the Pod
        // cannot start.
        return Plan {
            report: Some(report::ready(partition_ref)),
            requeue: retry,
            ..Plan::default()
        };
    };
    // The eviction of a Pod that shares a partition releases no IPUs.
    let is_new = matches!(pod.request, Ok(PodRequest::New(_)));
    let is_replaced = pod.has_controller && is_new;
    let remedy = match around.start_timeout {
        _ if start.state == StartState::Started => Remedy::Wait,
        Some(timeout) if is_replaced => Remedy::Evict(timeout),
        Some(_) | None => Remedy::Correct,
    };
    let left = match remedy {
        Remedy::Evict(timeout) => Some(remaining(pod, timeout, around)),
        Remedy::Wait | Remedy::Correct => None,
    };
    let report = report::not_starting(obstacle, remedy);
    // A pull takes as long as it takes, and its end is reported.
    let left = left.filter(|_| !pulls_again);
    let is_over = left.is_some_and(|left| left.is_zero());
    Plan {
        step: is_over.then(|| Step::Evict(report.disruption())),
        report: Some(report),
        requeue: left.into_iter().chain(retry).min(),
    }
}

/// Whether the condition of a Pod says that its partition is ready, or that it cannot start.
fn has_been_ready(pod: &NativePod) -> bool {
    let condition = pod.condition.as_ref();
    condition.is_some_and(|condition| condition.status == "True") || is_reported(pod)
}

/// Whether the condition of a Pod says that it cannot start.
fn is_reported(pod: &NativePod) -> bool {
    let condition = pod.condition.as_ref();
    condition.is_some_and(|condition| condition.reason.as_deref() == Some(NOT_STARTING))
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
