//! Pure: the fields that the dashboard stores of an IPUJob.

use ipu_api::ipujob_status::{JobCondition, JobState};
use ipu_api::queueing::STARTED_OUTSIDE_QUEUE;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::shown::shown;

/// Conditions that explain a wait for something other than IPUs, with their status, in the order of
/// the causes.
const OBSTACLES: [(&str, &str); 3] = [
    ("QuotaReserved", "False"),
    PODS_NOT_READY,
    ("Suspended", "True"),
];

/// The condition with the obstacle of the Pods.
const PODS_NOT_READY: (&str, &str) = ("PodsReady", "False");

/// An IPUJob. Its spec, which contains the templates of its Pods, is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: JobState,
    /// Reason for its wait, if it waits for something other than IPUs.
    pub obstacle: Option<Obstacle>,
}

/// Reason for the wait of a job for something other than IPUs: a quota of Kueue, or the obstacles
/// of its Pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The reason of the condition.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl Job {
    /// The stored fields of an object. A job without a readable state waits.
    pub fn of(object: DynamicObject) -> Option<Self> {
        let state = object.data.pointer("/status/launcherStatus");
        let state = state.and_then(|state: &Value| JobState::deserialize(state).ok());
        let state = state.unwrap_or_default();
        let conditions = object.data.pointer("/status/conditions");
        let conditions = conditions.and_then(|all| Vec::<JobCondition>::deserialize(all).ok());
        let metadata = object.metadata;
        Some(Self {
            uid: metadata.uid?,
            namespace: shown(&metadata.namespace.unwrap_or_default()),
            name: shown(&metadata.name.unwrap_or_default()),
            state,
            obstacle: obstacle(state, &conditions.unwrap_or_default()),
        })
    }
}

fn obstacle(state: JobState, conditions: &[JobCondition]) -> Option<Obstacle> {
    let obstacles = match state {
        JobState::Pending | JobState::Suspended => &OBSTACLES[..],
        // A job without a launcher is Running when its Pods exist, even if one of them cannot
        // start.
        JobState::Running => &[PODS_NOT_READY],
        JobState::Completed | JobState::Failed => &[],
    };
    let found = obstacles.iter().find_map(|(type_, status)| {
        let mut conditions = conditions
            .iter()
            .filter(|one| one.reason != STARTED_OUTSIDE_QUEUE);
        conditions.find(|one| one.type_ == *type_ && one.status == *status)
    })?;
    Some(Obstacle {
        reason: shown(&found.reason),
        message: shown(&found.message),
        since: found.last_transition_time.as_ref().map(|time| time.0),
    })
}
