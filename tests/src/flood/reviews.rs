//! Reviews for the load: some that the operator refuses, and some that reach a guest.

use serde_json::{Value, json};

/// Bytes of a note that makes the memory of a review small or large.
pub(super) const NOTES: [usize; 2] = [100 << 10, 1 << 20];

/// A review whose tree would take about seventy times its size.
pub fn hostile_review() -> String {
    let elements = vec![r#"{"":0}"#; 1_100_000].join(",");
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","object":{{"a":[{elements}]}}}}}}"#
    )
}

/// A review of a new IPUJob with a note of this number of bytes. It reaches every policy.
pub(super) fn valid(note: usize) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74-flood",
            "kind": {"group": "graphcore.ai", "version": "v1alpha1", "kind": "IPUJob"},
            "resource": {"group": "graphcore.ai", "version": "v1alpha1", "resource": "ipujobs"},
            "name": "flood", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "nobody"},
            "object": {
                "apiVersion": "graphcore.ai/v1alpha1",
                "kind": "IPUJob",
                "metadata": {
                    "name": "flood", "namespace": "default",
                    "annotations": {"note": "x".repeat(note)},
                },
                "spec": {"jobInstances": 1, "ipusPerJobInstance": "1", "workers": {"template": {"spec": {
                    "containers": [{"name": "worker", "image": "worker"}],
                }}}},
            },
        },
    })
}

/// A review with a `uid` of a mebibyte, which every line of the log would contain.
pub(super) fn long_uid() -> Value {
    let mut review = valid(0);
    review["request"]["uid"] = "x".repeat(1 << 20).into();
    review
}
