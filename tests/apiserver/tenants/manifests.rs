//! Objects of a tenant that the rules of the page accept.

use serde_json::{Value, json};

/// The pool of the attacker's namespace.
const POOL: &str = "pod2";

/// A Pod spec that Pod Security accepts at its level `restricted`.
fn pod_spec() -> Value {
    json!({
        "nodeSelector": {"ipunode": POOL},
        "automountServiceAccountToken": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            "name": "main", "image": "registry.example.com/own:1",
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            },
        }],
    })
}

/// A job of one worker.
pub(super) fn job(name: &str, ipus: u32) -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "metadata": {"name": name},
        "spec": {
            "jobInstances": 1, "ipusPerJobInstance": ipus.to_string(),
            "workers": {"template": {"spec": pod_spec()}},
        },
    })
}

/// A Pod with these labels and annotations.
pub(super) fn pod(name: &str, labels: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": pod_spec(),
    })
}

/// A native Pod.
pub(super) fn native(name: &str, ipus: u32) -> Value {
    let annotations = json!({"graphcore.ai/ipu": ipus.to_string()});
    pod(name, &json!({}), &annotations)
}
