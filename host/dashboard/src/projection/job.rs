//! Pure: what the dashboard keeps of an IPUJob.

use ipu_api::ipujob_status::JobState;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;

/// An IPUJob. Its spec, which contains the templates of its Pods, is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its UID.
    pub uid: String,
    /// Its state.
    pub state: JobState,
}

impl Job {
    /// What is kept of an object. A job without a readable state waits.
    pub fn of(object: DynamicObject) -> Option<Self> {
        let state = object.data.pointer("/status/launcherStatus");
        let state = state.and_then(|state: &Value| JobState::deserialize(state).ok());
        Some(Self {
            uid: object.metadata.uid?,
            state: state.unwrap_or_default(),
        })
    }
}
