//! Pure: finds the milestones that a job has reached between two statuses.

use ipu_api::ipujob_status::IPUJobStatus;
use jiff::Timestamp;

use crate::job_conditions::{RUNNING, SUSPENDED};

/// The reached milestones. Times are in seconds since the job's creation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Milestones {
    /// All its partitions exist for the first time.
    pub to_partition: Option<f64>,
    /// It runs for the first time.
    pub to_running: Option<f64>,
    /// Number of restarts.
    pub restarts: u64,
    /// It has finished, in this phase.
    pub finished: Option<&'static str>,
}

/// Returns the milestones of a job that was created at `created`.
pub fn milestones(
    old: &IPUJobStatus,
    new: &IPUJobStatus,
    created: Option<Timestamp>,
    now: Timestamp,
) -> Milestones {
    let has_run = has(old, RUNNING);
    // A suspended job waits for its user.
    let was_suspended = has(old, SUSPENDED) || has(new, SUSPENDED);
    let waited = created
        .filter(|_| !has_run && !was_suspended)
        .map(|created| now.duration_since(created).as_secs_f64().max(0.0));
    let had_partitions = old.ipu_partition_created == Some(true);
    let has_partitions = new.ipu_partition_created == Some(true);
    let restarts = |status: &IPUJobStatus| status.restart_count.unwrap_or(0);
    let has_finished = old.completion_time.is_none() && new.completion_time.is_some();
    Milestones {
        to_partition: waited.filter(|_| !had_partitions && has_partitions),
        to_running: waited.filter(|_| has(new, RUNNING)),
        restarts: u64::try_from(restarts(new).saturating_sub(restarts(old))).unwrap_or(0),
        finished: has_finished.then(|| new.launcher_status.into()),
    }
}

fn has(status: &IPUJobStatus, condition: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|known| known.type_ == condition)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn passed(old: Value, new: Value) -> Milestones {
        let status = |mut status: Value| {
            status["desiredReplicas"] = json!(1);
            status["lastMessage"] = json!("");
            serde_json::from_value::<IPUJobStatus>(status).unwrap()
        };
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        milestones(
            &status(old),
            &status(new),
            Some(time("2026-01-01T12:00:00Z")),
            time("2026-01-01T12:00:05Z"),
        )
    }

    fn conditions(types: &[&str]) -> Value {
        let conditions = types
            .iter()
            .map(|name| json!({"type": name, "status": "True"}));
        json!({"conditions": conditions.collect::<Vec<_>>(), "iPUPartitionCreated": true})
    }

    #[test]
    fn each_milestone_is_reached_once() {
        let nothing = Milestones::default();
        let partition = passed(json!({}), json!({"iPUPartitionCreated": true}));
        assert_eq!(
            partition,
            Milestones {
                to_partition: Some(5.0),
                ..nothing
            }
        );
        let running = passed(
            json!({"iPUPartitionCreated": true}),
            conditions(&["Running"]),
        );
        assert_eq!(
            running,
            Milestones {
                to_running: Some(5.0),
                ..nothing
            }
        );
        let later = passed(conditions(&["Running"]), conditions(&["Running"]));
        assert_eq!(later, nothing);
        let scaled = json!({"conditions": conditions(&["Running"])["conditions"]});
        assert_eq!(passed(scaled, conditions(&["Running"])), nothing);
    }

    #[test]
    fn a_suspended_job_did_not_wait_for_ipus() {
        let held = json!({"conditions": [{"type": "Suspended", "status": "False"}]});
        let running = passed(held, conditions(&["Suspended", "Running"]));
        assert_eq!(running, Milestones::default());
    }

    #[test]
    fn restarts_and_the_end_are_counted() {
        let again = passed(json!({"restartCount": 1}), json!({"restartCount": 3}));
        assert_eq!(again.restarts, 2);
        let end = json!({"launcherStatus": "Failed", "completionTime": "2026-01-01T12:00:05Z"});
        assert_eq!(passed(json!({}), end.clone()).finished, Some("Failed"));
        assert_eq!(passed(end.clone(), end).finished, None);
    }
}
