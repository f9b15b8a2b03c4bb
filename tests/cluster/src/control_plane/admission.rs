//! Waits until an API server no longer calls removed webhooks, and no longer enforces removed
//! policies.
//!
//! It follows their objects with a delay, policies with one of up to a second. It reads the objects
//! of a kind in their order, so a later object that takes effect shows that it knows of earlier
//! removals.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::wait::{Seen, WaitedTooLong, until};

/// The name of the later objects.
const NAME: &str = "pool.ipu-operator.test";

/// The label of the ConfigMap that a later object of a kind denies.
const LABEL: &str = "pool.ipu-operator.test/denied-by";

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Longest wait on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Failure to wait for an API server.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// A request cannot be built.
    #[error("failed to build the request for {path}")]
    Build {
        /// The path.
        path: String,
        /// The cause.
        #[source]
        source: http::Error,
    },
    /// The API server refused an object.
    #[error("failed to create an object at {path}")]
    Create {
        /// The path.
        path: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object had no effect.
    #[error(transparent)]
    Waited(#[from] WaitedTooLong),
}

/// A kind of objects that deny requests.
struct Kind {
    /// The prefixes of their keys in etcd.
    keys: &'static [&'static str],
    /// The value of the label.
    label: &'static str,
    /// The objects, by plural.
    objects: fn() -> Vec<(&'static str, Value)>,
}

const KINDS: [Kind; 3] = [
    Kind {
        keys: &["/registry/mutatingwebhookconfigurations/"],
        label: "mutating",
        objects: || {
            vec![(
                "mutatingwebhookconfigurations",
                webhook("MutatingWebhookConfiguration", "mutating"),
            )]
        },
    },
    Kind {
        keys: &["/registry/validatingwebhookconfigurations/"],
        label: "validating",
        objects: || {
            vec![(
                "validatingwebhookconfigurations",
                webhook("ValidatingWebhookConfiguration", "validating"),
            )]
        },
    },
    Kind {
        keys: &[
            "/registry/validatingadmissionpolicies/",
            "/registry/validatingadmissionpolicybindings/",
        ],
        label: "policy",
        objects: policy,
    },
];

/// After the removal of the objects of these keys, waits until those among them that can deny
/// requests have no effect. Returns whether there were any. In that case objects of this module
/// remain, which affect no other requests.
pub(super) async fn once_forgotten(
    client: &Client,
    removed: &[String],
) -> Result<bool, AdmissionError> {
    let is_removed = |kind: &&Kind| {
        let mut keys = kind.keys.iter();
        keys.any(|prefix| removed.iter().any(|key| key.starts_with(prefix)))
    };
    let kinds: Vec<&Kind> = KINDS.iter().filter(is_removed).collect();
    for kind in &kinds {
        for (plural, object) in (kind.objects)() {
            let path = format!("{GROUP}/{plural}");
            let created = client.request_text(post(&path, &object)?).await;
            created.map_err(|source| AdmissionError::Create {
                path,
                source: Box::new(source),
            })?;
        }
    }
    for kind in &kinds {
        let what = format!("{} objects to be followed", kind.label);
        until(what, PATIENCE, async || {
            let denial = denial(client, kind.label).await?;
            Ok::<_, AdmissionError>(Seen::when(denial, |text| text.contains(NAME)))
        })
        .await?;
    }
    Ok(!kinds.is_empty())
}

/// Creates a ConfigMap with this label in a dry run. Returns the error.
async fn denial(client: &Client, label: &str) -> Result<String, AdmissionError> {
    let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "labels": {LABEL: label}},
    });
    let created = client.request_text(post(path, &map)?).await;
    Ok(created
        .err()
        .map_or_else(String::new, |error| error.to_string()))
}

fn post(path: &str, object: &Value) -> Result<Request<Vec<u8>>, AdmissionError> {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes());
    request.map_err(|source| AdmissionError::Build {
        path: path.to_owned(),
        source,
    })
}

/// The rule for new ConfigMaps.
fn rule() -> Value {
    json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"],
    })
}

/// A webhook that cannot be called.
fn webhook(kind: &str, label: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": NAME,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
            // Nothing listens on this port.
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "objectSelector": {"matchLabels": {LABEL: label}},
            "rules": [rule()],
        }],
    })
}

/// A policy that denies, and its binding.
fn policy() -> Vec<(&'static str, Value)> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "matchConstraints": {
                "objectSelector": {"matchLabels": {LABEL: "policy"}},
                "resourceRules": [rule()],
            },
            "validations": [{"expression": "false", "message": NAME}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    });
    vec![
        ("validatingadmissionpolicies", policy),
        ("validatingadmissionpolicybindings", binding),
    ]
}
