//! The status of an IPUJob, with the keys and strings that users of Graphcore's operator know.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

pub use super::ipujob_run::{InstanceEnd, InstanceStart, PodRejections, RunStatus};

/// State of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPUJobStatus {
    /// State of the job, also of a job without a launcher: the STATUS column.
    #[serde(default)]
    pub launcher_status: JobState,
    /// Number of job instances whose Pods exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,
    /// Desired number of job instances.
    pub desired_replicas: i32,
    /// Message of the last change.
    pub last_message: String,
    /// Whether every instance has its partition.
    #[serde(
        default,
        rename = "iPUPartitionCreated",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipu_partition_created: Option<bool>,
    /// Number of restarts of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<i32>,
    /// Time at which the operator first saw the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Time at which the job finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Time of the last change of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconcile_time: Option<Time>,
    /// Number of worker Pods by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_status: Option<WorkersStatus>,
    /// Number of automatic resets by the V-IPU controllers of the job's current partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic_resets: Option<i64>,
    /// Selects one Pod of each instance, for a HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// End of an interactive job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_end_time: Option<Time>,
    /// Record of the current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunStatus>,
    /// Seconds of the job by activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<JobAccounting>,
    /// Grant of Kueue to a job in a queue. Without it, such a job does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<JobAdmission>,
    /// Conditions of the job, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<JobCondition>,
}

/// Seconds of a job by activity, since its creation. Each second counts once. A job of an earlier
/// version of the operator is counted from its next state on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobAccounting {
    /// End of the time that is counted. The time after it is counted with a later update of the
    /// status.
    pub until: Time,
    /// Activity of the job since then. Missing: it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<JobActivity>,
    /// Until the operator requested its partitions from V-IPU controllers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: i64,
    /// From the request to the V-IPU controllers until all partitions were ready.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forming: i64,
    /// From ready partitions until the job ran: Pods wait for a node, images are pulled, init
    /// containers run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub starting: i64,
    /// In the state `Running`, without the runs that failed, and without idle time and resets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub running: i64,
    /// Seconds of `running` in the current run. If the run fails, they are moved to `wasted`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub current_run: i64,
    /// In the state `Running`, in runs that failed, without idle time and resets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wasted: i64,
    /// While a V-IPU controller reset a partition of the job, and no Pod of the job was ready.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resetting: i64,
    /// While a partition was ready, and no Pod of the run was ready any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle: i64,
    /// Between two runs, until the partitions were ready again and the back-off was over, without
    /// the time in which they were idle or reset.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarting: i64,
    /// In the state `Suspended`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspended: i64,
}

/// Activity of a job, as its accounting counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum JobActivity {
    /// It waits until its partitions are requested from V-IPU controllers.
    Waiting,
    /// Its partitions are created.
    Forming,
    /// Its Pods start.
    Starting,
    /// It runs.
    Running,
    /// A partition is reset.
    Resetting,
    /// It has a partition, and no Pod of the run is ready any more.
    Idle,
    /// It is about to run again.
    Restarting,
    /// It is suspended.
    Suspended,
}

impl JobAccounting {
    /// The sum of all seconds. It is the time from the creation of the job until `until`, if the
    /// accounting covers all of it.
    pub fn total(&self) -> i64 {
        let pending = [self.waiting, self.forming, self.starting, self.restarting];
        let others = [
            self.running,
            self.wasted,
            self.resetting,
            self.idle,
            self.suspended,
        ];
        pending
            .iter()
            .chain(&others)
            .fold(0, |sum, one| sum.saturating_add(*one))
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(seconds: &i64) -> bool {
    *seconds == 0
}

/// Grant of Kueue to a job in a queue. It is part of the status, which users cannot write, because
/// it changes Pods after the policies have seen them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobAdmission {
    /// Additions of the admission to the Pods of each pod set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSetUpdate>,
    /// Whether the partitions of the job are created while it is suspended, because an
    /// AdmissionCheck waits for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve_partitions: bool,
}

/// Additions of an admission to the Pods of one pod set: node labels and tolerations of its
/// flavors, and the updates of admission checks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// Name of the pod set: `worker` or `launcher`.
    #[serde(default)]
    pub name: String,
    /// Number of Pods that were admitted. While Kueue is installed, no instance beyond them starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Labels of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels that their nodes must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that they tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// State of a job: the STATUS column.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr,
)]
pub enum JobState {
    /// Waiting for a partition or for Pods.
    #[default]
    Pending,
    /// Its Pods run.
    Running,
    /// Succeeded.
    Completed,
    /// Failed, or can never start.
    Failed,
    /// Suspended by `spec.suspend`.
    Suspended,
}

/// Number of worker Pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkersStatus {
    /// Pending or running.
    #[serde(default)]
    pub active: i32,
    /// Ended with exit code 0.
    #[serde(default)]
    pub succeeded: i32,
    /// Ended with another exit code.
    #[serde(default)]
    pub failed: i32,
}

/// One condition of a job, in the shape of Graphcore's operator (with `lastUpdateTime`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCondition {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, …
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason in one word, for programs.
    #[serde(default)]
    pub reason: String,
    /// Message in a sentence, for users.
    #[serde(default)]
    pub message: String,
    /// Time of the last update of the condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Time of the last change of `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

impl JobCondition {
    /// Sets the condition of a type. Keeps its times if nothing else changes, and the time of its
    /// transition if its status does not.
    pub fn set(
        conditions: &mut Vec<Self>,
        type_: &str,
        (status, reason, message): (&str, &str, &str),
        now: Timestamp,
    ) {
        let mut condition = Self {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_update_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
        };
        let Some(old) = conditions.iter_mut().find(|old| old.type_ == type_) else {
            conditions.push(condition);
            return;
        };
        if old.status == status {
            if old.reason == reason && old.message == message {
                return;
            }
            condition.last_transition_time = old.last_transition_time.take();
        }
        *old = condition;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_times_of_a_condition_move_with_what_changes() {
        let mut conditions = Vec::new();
        let mut set = |type_, said, second| {
            let now = Timestamp::from_second(second).unwrap();
            JobCondition::set(&mut conditions, type_, said, now);
            let last = conditions.iter().find(|one| one.type_ == type_).unwrap();
            let times = [&last.last_update_time, &last.last_transition_time];
            let times = times.map(|time| Some(time.as_ref()?.0.as_second()));
            (times, conditions.len())
        };
        let waits = ("False", "Pending", "waits");
        assert_eq!(set("Ready", waits, 1), ([Some(1), Some(1)], 1));
        assert_eq!(set("Stalled", waits, 2), ([Some(2), Some(2)], 2));
        assert_eq!(set("Ready", waits, 3), ([Some(1), Some(1)], 2));
        let waits_longer = ("False", "Pending", "still waits");
        assert_eq!(set("Ready", waits_longer, 4), ([Some(4), Some(1)], 2));
        let runs = ("True", "Running", "runs");
        assert_eq!(set("Ready", runs, 5), ([Some(5), Some(5)], 2));
    }

    #[test]
    fn an_admission_round_trips() {
        let admission = JobAdmission {
            pod_sets: vec![PodSetUpdate {
                name: "worker".to_owned(),
                count: Some(2),
                node_selector: BTreeMap::from([("pool".to_owned(), "a".to_owned())]),
                ..PodSetUpdate::default()
            }],
            reserve_partitions: false,
        };
        let stored = json!(admission);
        let worker = json!({"name": "worker", "count": 2, "nodeSelector": {"pool": "a"}});
        let expected = json!({"podSets": [worker]});
        assert_eq!(stored, expected);
        assert_eq!(
            serde_json::from_value::<JobAdmission>(stored).unwrap(),
            admission
        );
    }
}
