//! Tries to create an object: the API server checks and admits it as any other, and stores nothing.

use std::fmt::Debug;

use kube::api::{Api, PostParams};
use kube::core::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::requests;

/// Returns the reason for which the API server refuses to create `object` now: an invalid field, Pod Security, a quota,
/// or a policy or webhook of the cluster. `None`: it would create the object, or nothing is known, because the API server
/// or a webhook failed.
pub async fn refusal<K>(api: &Api<K>, object: &K) -> Option<String>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let parameters = PostParams {
        dry_run: true,
        ..requests::post()
    };
    match api.create(&parameters, object).await {
        Err(kube::Error::Api(status)) if is_refusal(&status) => Some(status.message.clone()),
        Ok(_) | Err(_) => None,
    }
}

/// Whether a failure is a decision about the object. In a new namespace, the account `default` and the use of a quota
/// appear a moment later. A webhook that does not support dry runs says nothing about the object.
fn is_refusal(status: &Status) -> bool {
    let message = status.message.as_str();
    let is_too_early = message.contains("serviceaccount \"default\" not found")
        || message.contains("status unknown for quota");
    let is_about_the_trial = message.contains("does not support dry run");
    let is_decision =
        matches!(status.code, 400 | 403 | 422) || message.contains(" denied the request");
    is_decision && !is_too_early && !is_about_the_trial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_decisions_about_the_object_are_refusals() {
        for (code, message, expected) in [
            (403, "pods \"a\" is forbidden: violates PodSecurity", true),
            (403, "pods \"a\" is forbidden: exceeded quota: pods", true),
            (422, "Pod \"a\" is invalid: spec.volumes", true),
            (
                418,
                "admission webhook \"a.b\" denied the request: no",
                true,
            ),
            (
                403,
                "pods \"a\" is forbidden: status unknown for quota: q",
                false,
            ),
            (
                403,
                "pods \"a\" is forbidden: error looking up service account ns/default: serviceaccount \"default\" not \
                 found",
                false,
            ),
            (
                400,
                "admission webhook \"a.b\" does not support dry run",
                false,
            ),
            (
                500,
                "Internal error occurred: failed calling webhook \"a.b\"",
                false,
            ),
            (404, "namespaces \"ns\" not found", false),
            (409, "pods \"a\" already exists", false),
            (429, "too many requests", false),
        ] {
            let status = Status {
                code,
                message: message.to_owned(),
                ..Status::default()
            };
            assert_eq!(is_refusal(&status), expected, "{code} {message}");
        }
    }
}
