//! Pure: the fields that the dashboard stores of an IPUPolicy.

use ipu_api::ipupolicy::{IPUPolicy, ShadowCounts};
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::Serialize;

use crate::shown::shown;

/// An IPUPolicy. Its settings and its module are not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Hook at which it decides.
    pub hook: &'static str,
    /// Whether its answers count.
    pub mode: String,
    /// Its position among the guests of its hook.
    pub order: i32,
    /// Its phase.
    pub phase: String,
    /// The message.
    pub message: String,
    /// Since when its active version is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Digest of the active module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_digest: Option<String>,
    /// Digest of the desired module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_digest: Option<String>,
    /// Calls with an answer.
    pub answered: i64,
    /// Calls without one.
    pub failed: i64,
    /// Comparison of its answers with those that count, without samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowCounts>,
    /// The number of replicas that report about it.
    pub replicas: usize,
    /// The number of replicas with a problem.
    pub replicas_with_problem: usize,
}

impl Policy {
    /// The stored fields of an object. `None`: it is unreadable.
    pub fn of(object: DynamicObject) -> Option<Self> {
        let object: IPUPolicy = object.try_parse().ok()?;
        let status = object.status.unwrap_or_default();
        let replicas = &status.replicas;
        let problems = replicas.iter().filter(|one| one.problem.is_some());
        Some(Self {
            name: shown(&object.metadata.name.unwrap_or_default()),
            hook: object.spec.hook.name(),
            mode: format!("{:?}", object.spec.mode),
            order: object.spec.order,
            phase: format!("{:?}", status.phase),
            message: shown(&status.message),
            since: status.since.map(|time| time.0),
            active_digest: status.active_digest.as_deref().map(shown),
            desired_digest: status.desired_digest.as_deref().map(shown),
            answered: status.calls.answered,
            failed: status.calls.failed,
            shadow: status.shadow.map(|counts| ShadowCounts {
                samples: Vec::new(),
                ..counts
            }),
            replicas: replicas.len(),
            replicas_with_problem: problems.count(),
        })
    }
}
