//! Pure: which IPUs were in partitions, and for how long, according to the journals of the V-IPU
//! controllers.

use std::collections::HashMap;
use std::time::Duration;

use ipu_evaluation::Job;
use vipu_simulator::faults::Method;
use vipu_simulator::journal::Call;

use super::users::Observed;

/// The time for which the partition of a job had its IPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// The job.
    pub(super) job: usize,
    /// Index of the V-IPU controller.
    pub(super) pod: usize,
    /// IPUs.
    pub(super) ipus: u32,
    /// Time at which the controller began to form it.
    pub(super) from: Duration,
    /// Time at which the controller had removed it.
    pub(super) to: Duration,
}

/// Returns the holds of all partitions, from the calls of each controller.
pub(super) fn holds(calls: &[Vec<Call>], observed: &Observed, jobs: &[Job]) -> Vec<Hold> {
    let mut holds = Vec::new();
    for (pod, calls) in calls.iter().enumerate() {
        let done = calls
            .iter()
            .filter(|call| call.outcome.as_deref() == Some("ok"));
        let removals = done
            .clone()
            .filter(|call| call.method == Method::RemovePartition);
        let removed: HashMap<&str, _> = removals
            .map(|call| (call.partition.as_str(), call.ended))
            .collect();
        for call in done.filter(|call| call.method == Method::CreatePartition) {
            let Some(&job) = observed.ids.get(&call.partition) else {
                // The controller was called after the attempt was written, so the last list
                // contains all earlier attempts.
                assert!(
                    observed.since_begin(call.began) >= observed.listed,
                    "{call:?}"
                );
                continue;
            };
            let ended = removed.get(call.partition.as_str()).copied().flatten();
            holds.push(Hold {
                job,
                pod,
                ipus: jobs[job].ipus,
                from: observed.since_begin(call.began),
                to: ended.map_or(Duration::MAX, |ended| observed.since_begin(ended)),
            });
        }
    }
    holds
}

/// Returns the share of the IPUs that were in partitions, from the beginning until `end`.
pub(super) fn allocation(holds: &[Hold], end: Duration, capacity: u32) -> f64 {
    let held = holds.iter().map(|hold| {
        let time = hold.to.min(end).saturating_sub(hold.from);
        f64::from(hold.ipus) * time.as_secs_f64()
    });
    held.sum::<f64>() / (f64::from(capacity) * end.as_secs_f64())
}

/// Returns how much longer a partition exists than its job runs: the median of those that ended
/// before `end`.
pub(super) fn overhead(holds: &[Hold], jobs: &[Job], end: Duration) -> Duration {
    let ended = holds.iter().filter(|hold| hold.to <= end);
    median(ended.map(|hold| {
        let duration = Duration::from_millis(jobs[hold.job].duration);
        hold.to.saturating_sub(hold.from + duration)
    }))
}

/// Returns the time from the end of a hold to the next one on its controller, for requests that
/// waited: the median.
pub(super) fn handover(holds: &[Hold], waited: &[&Hold]) -> Duration {
    median(waited.iter().filter_map(|hold| {
        let earlier = holds
            .iter()
            .filter(|other| other.pod == hold.pod && other.to <= hold.from);
        let last = earlier.map(|other| other.to).max()?;
        hold.from.checked_sub(last)
    }))
}

/// Returns the median, or zero without values.
fn median(values: impl Iterator<Item = Duration>) -> Duration {
    let mut values: Vec<Duration> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
