//! Pure: the condition `QuotaReserved` of an IPUJob, which repeats what Kueue says about its
//! Workload, so that `kubectl describe ipujob` shows it.

use std::time::Duration;

use ipu_api::ipujob_status::JobCondition;
use ipu_api::queueing::STARTED_OUTSIDE_QUEUE;
use ipu_text::sanitize;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::job::QueuedJob;
use crate::objects::{QUOTA_RESERVED, Workload};

/// Shortest time between two writes of which only the message differs: Kueue's messages contain
/// quantities of others.
const PERIOD: Duration = Duration::from_secs(30);

/// Longest message, in bytes.
const MESSAGE_MAX: usize = 1_024;

/// Time at which the condition must be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// Never: the condition repeats Kueue already.
    Never,
    /// Now, with these conditions of the job.
    Now(Vec<JobCondition>),
    /// After this delay.
    Later(Duration),
}

/// Decides whether the condition of a job must be written.
pub fn due(job: &QueuedJob, workload: &Workload, now: Timestamp) -> Due {
    if job.is_elsewhere || job.end.is_some() {
        return Due::Never;
    }
    let said = ["True", "False"]
        .into_iter()
        .find_map(|status| workload.condition(QUOTA_RESERVED, status));
    let Some(said) = said else {
        return Due::Never;
    };
    // It contains texts of other controllers and their admission checks.
    let message = sanitize(&said.message, MESSAGE_MAX);
    due_write(job, (&said.status, &said.reason, &message), now)
}

/// Decides whether the condition of a job that runs without a Workload must be written.
pub fn outside(job: &QueuedJob, now: Timestamp) -> Due {
    let message = "the job was started before it was in a queue, and runs to its end without quota; set spec.suspend to true \
                   to stop it, and it waits in its queue";
    due_write(job, ("False", STARTED_OUTSIDE_QUEUE, message), now)
}

/// Decides when the condition is written with this status, reason and message.
fn due_write(
    job: &QueuedJob,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Due {
    let old = job
        .conditions
        .iter()
        .find(|one| one.type_ == QUOTA_RESERVED);
    let is_same_reason = old.is_some_and(|old| old.status == status && old.reason == reason);
    if is_same_reason && old.is_some_and(|old| old.message == message) {
        return Due::Never;
    }
    let written = old.and_then(|old| old.last_update_time.as_ref());
    if is_same_reason && let Some(Time(written)) = written {
        let passed = Duration::try_from(now.duration_since(*written)).unwrap_or(PERIOD);
        if let Some(left) = PERIOD.checked_sub(passed).filter(|left| !left.is_zero()) {
            return Due::Later(left);
        }
    }
    let mut conditions = job.conditions.clone();
    JobCondition::set(
        &mut conditions,
        QUOTA_RESERVED,
        (status, reason, message),
        now,
    );
    Due::Now(conditions)
}
