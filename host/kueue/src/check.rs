//! Pure: the answer of the AdmissionCheck `graphcore.ai/partition`: whether the partitions of a job
//! are ready.

use std::time::Duration;

use ipu_jobs::facts::partition::PartitionState;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::partitions::JobPartition;

/// Time for which a job keeps its quota while no V-IPU controller has free capacity for its
/// partitions.
const PATIENCE: Duration = Duration::from_secs(10);

/// Delay of the first retry. It doubles with each.
const FIRST_RETRY: Duration = Duration::from_secs(10);

/// Longest delay of a retry.
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// Longest delay for a Workload that holds its quota meanwhile, because Kueue has reserved it again
/// at once.
const LONGEST_HELD_RETRY: Duration = Duration::from_secs(30);

/// Longest message of a check, in bytes. Kueue accepts 32,768.
const MESSAGE_MAX: usize = 1_024;

/// The answer of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The state.
    pub state: State,
    /// The message for users.
    pub message: String,
    /// The additions of a ready check to the Pods of each pod set.
    pub updates: Option<Value>,
}

/// The state of a check, as the status of a Workload names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// The partitions are being created, or wait.
    Pending,
    /// All partitions are ready.
    Ready,
    /// There is no free capacity: the quota is released, and the Workload is admitted again after a
    /// delay.
    Retry,
    /// The partitions can never be created.
    Rejected,
}

impl Answer {
    /// The answer for a Workload whose partitions are not created before its admission. Each of its
    /// Pods gets one by its scheduling gate.
    pub fn of_other_jobs() -> Self {
        Self::new(
            State::Ready,
            "each Pod that requests IPUs waits for its partition behind its scheduling gate",
        )
    }

    /// The answer for a Workload whose partitions can never be created, for this reason.
    pub fn rejected(reason: &str) -> Self {
        Self::new(State::Rejected, reason)
    }

    /// The answer for a Workload whose partitions are requested again at this time, after a retry.
    pub fn delayed(until: Timestamp) -> Self {
        let message = format!(
            "no V-IPU controller had free capacity for the partitions; they are requested again at {}",
            seconds(until)
        );
        Self::new(State::Pending, &message)
    }

    /// The answer for a Workload whose partitions are not requested now, for this reason: it
    /// releases its quota.
    pub fn retry(reason: &str) -> Self {
        Self::new(State::Retry, reason)
    }

    fn new(state: State, message: &str) -> Self {
        let end = message.floor_char_boundary(MESSAGE_MAX);
        Self {
            state,
            message: message[..end].to_owned(),
            updates: None,
        }
    }

    /// Adds these updates if the check is ready. Kueue allows no change of them afterwards.
    #[must_use]
    pub fn with_updates(self, updates: Value) -> Self {
        let is_ready = self.state == State::Ready;
        Self {
            updates: is_ready.then_some(updates),
            ..self
        }
    }

    /// Whether the status of a Workload has this answer.
    pub fn is_in(&self, check: &Value) -> bool {
        check["state"] == json!(self.state) && check["message"] == self.message.as_str()
    }

    /// Returns the entry of the status with this answer. It keeps its other fields, such as the
    /// number of retries.
    pub fn set_in(&self, check: &Value, now: Timestamp) -> Value {
        let (mut check, state) = (check.clone(), json!(self.state));
        if check["state"] != state {
            check["lastTransitionTime"] = json!(seconds(now));
        }
        check["state"] = state;
        check["message"] = json!(self.message);
        if let Some(updates) = &self.updates {
            check["podSetUpdates"] = updates.clone();
        }
        check
    }
}

/// Returns a time as Kubernetes writes it, in whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Answers the check of a job with reserved quota, which needs a partition for each of `count`
/// instances, or Pods. Also returns the delay after which the answer may change by itself.
pub fn answer(
    (what, count): (&str, u32),
    partitions: &[JobPartition],
    now: Timestamp,
) -> (Answer, Option<Duration>) {
    let of = |instance: u32| partitions.iter().find(|one| one.instance == instance);
    let mut waiting: Vec<String> = Vec::new();
    let mut since: Option<Timestamp> = None;
    for instance in 0..count {
        let found = of(instance);
        let reason = match found.map(|one| &one.state) {
            Some(PartitionState::Ready(_)) => continue,
            Some(PartitionState::Rejected(reason)) => {
                let message = format!("{what} {instance} can never start: {reason}");
                return (Answer::new(State::Rejected, &message), None);
            }
            Some(state) => state.unusable_reason(),
            None => None,
        };
        if let Some(PartitionState::Waiting(reasons)) = found.map(|one| &one.state)
            && !reasons.is_empty()
        {
            let requested = found.and_then(|one| one.requested);
            since = since.into_iter().chain(requested).min();
        }
        let reason = reason.unwrap_or_else(|| "its partition is being requested".to_owned());
        waiting.push(format!("{what} {instance}: {reason}"));
    }
    if waiting.is_empty() {
        let message = format!("every {what} has its partition");
        return (Answer::new(State::Ready, &message), None);
    }
    let message = waiting.join("; ");
    let Some(since) = since else {
        return (Answer::new(State::Pending, &message), None);
    };
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let left = PATIENCE.saturating_sub(waited);
    if !left.is_zero() {
        return (Answer::new(State::Pending, &message), Some(left));
    }
    (Answer::new(State::Retry, &message), None)
}

/// Returns the delay of the next admission after a `Retry` of the check.
///
/// The field `requeueAfterSeconds` of the check is for this, but Kueue 0.19 keeps the quota until
/// that time is over. The operator therefore releases the quota at once, and requeues the Workload
/// itself.
pub fn retry_delay(check: &Value) -> Duration {
    let retries = check.get("retryCount").and_then(Value::as_u64).unwrap_or(1);
    let doublings = u32::try_from(retries.saturating_sub(1).min(16)).unwrap_or(16);
    FIRST_RETRY
        .saturating_mul(1 << doublings)
        .min(LONGEST_RETRY)
}

/// Returns the time before which no partition is requested after a `Retry` of a check, if Kueue has
/// reserved quota again at once. `None`: the check was not retried.
pub fn not_before(check: &Value) -> Option<Timestamp> {
    let retries = check.get("retryCount")?.as_u64()?;
    // Kueue has reset it to `Pending` then.
    let reset: Timestamp = check.get("lastTransitionTime")?.as_str()?.parse().ok()?;
    let delay = retry_delay(check).min(LONGEST_HELD_RETRY);
    let next = reset.checked_add(delay).ok()?;
    (retries > 0).then_some(next)
}
