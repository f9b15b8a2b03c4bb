//! What the API server refuses, and what it drops.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{Cluster, State};

impl Cluster {
    /// The quota refuses these Pods from now on.
    pub(crate) fn refuse(&self, pods: &[&str]) {
        self.state().refused = pods.iter().map(|pod| (*pod).to_owned()).collect();
    }

    /// A policy demands this label of every Pod from now on.
    pub(crate) fn demand_label(&self, key: &str) {
        self.state().demanded_label = Some(key.to_owned());
    }

    /// The API server drops the volumes of Pods from now on, or keeps them.
    pub(crate) fn drop_volumes(&self, drops: bool) {
        self.state().drops_volumes = drops;
    }
}

impl State {
    /// Answers a dry run, which is no request of a test's list.
    pub(super) fn try_create(&self, mut object: Value) -> (StatusCode, Value) {
        if self.refuses(&object) {
            return refusal(StatusCode::FORBIDDEN, "Forbidden");
        }
        self.drop_volumes_of(&mut object);
        (StatusCode::CREATED, object)
    }

    pub(super) fn refuses(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let lacks = |key: &String| is_pod(object) && labels[key].is_null();
        let mut refused = self.refused.iter();
        refused.any(|name| object["metadata"]["name"] == **name)
            || self.demanded_label.as_ref().is_some_and(lacks)
    }

    pub(super) fn drop_volumes_of(&self, object: &mut Value) {
        if self.drops_volumes && is_pod(object) {
            object["spec"]["volumes"] = json!([]);
        }
    }
}

fn is_pod(object: &Value) -> bool {
    object["spec"]["containers"].is_array()
}

pub(super) fn refusal(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": format!("{reason}, said the API server"),
    });
    (code, status)
}
