//! The AdmissionReview requests of the API server for a new job.

use ipu_admission::request::{AdmissionRequest, RequestError, parse};
use serde_json::{Value, json};

/// The request for a job with this spec and a note of this number of bytes.
pub fn creating(name: &str, note: usize, spec: &Value) -> Result<AdmissionRequest, RequestError> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74",
            "kind": {"group": "graphcore.ai", "version": "v1alpha1", "kind": "IPUJob"},
            "resource": {"group": "graphcore.ai", "version": "v1alpha1", "resource": "ipujobs"},
            "name": name, "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "jane"},
            "object": {
                "apiVersion": "graphcore.ai/v1alpha1",
                "kind": "IPUJob",
                "metadata": {"name": name, "annotations": {"note": "x".repeat(note)}},
                "spec": spec,
            },
            "oldObject": null,
        },
    });
    parse(review.to_string().as_bytes())
}
