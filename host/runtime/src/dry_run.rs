//! Tries to create an object: the API server checks and admits it as any other, and stores nothing.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kube::api::{Api, PostParams};
use kube::core::Status;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{image_volume, requests};

/// Time for which an accepted object is not tried again: the time from the admission of a job to
/// its first reconcile, on a busy machine. Quotas and policies change more slowly, and the creation
/// itself is checked in any case.
const ACCEPTED_AGE: Duration = Duration::from_secs(10);

/// Most accepted objects that are known. Further ones are tried again.
const ACCEPTED_MAX: usize = 1_024;

/// The dry runs of this process. Clones share what the API server accepted lately.
#[derive(Clone, Debug, Default)]
pub struct DryRuns(Arc<Accepted>);

/// An object to try, in the forms in which it may be created.
#[derive(Clone, Debug)]
pub struct Forms<K> {
    /// Its usual form.
    pub usual: K,
    /// The form in which it is created if the API server refuses the usual one.
    pub otherwise: Option<K>,
}

impl<K> Forms<K>
where
    K: Clone + Debug + DeserializeOwned + Resource + Serialize,
{
    /// Returns the reason for which the API server refuses the usual form, if it accepts no form.
    /// See [`DryRuns::refusal`].
    pub async fn refusal(&self, dry_runs: &DryRuns, api: &Api<K>) -> Option<String> {
        let reason = dry_runs.refusal(api, &self.usual).await?;
        let is_refused = self.is_otherwise_refused(dry_runs, api).await;
        is_refused.then_some(reason)
    }

    /// The same, without a request if the API server has accepted the form in the last seconds.
    pub async fn new_refusal(&self, dry_runs: &DryRuns, api: &Api<K>) -> Option<String> {
        let reason = dry_runs.new_refusal(api, &self.usual).await?;
        let is_refused = self.is_otherwise_refused(dry_runs, api).await;
        is_refused.then_some(reason)
    }

    /// Whether there is no other form that the API server accepts.
    async fn is_otherwise_refused(&self, dry_runs: &DryRuns, api: &Api<K>) -> bool {
        match &self.otherwise {
            Some(otherwise) => dry_runs.new_refusal(api, otherwise).await.is_some(),
            None => true,
        }
    }
}

#[derive(Debug, Default)]
struct Accepted {
    hasher: RandomState,
    /// By hash of the object and its resource.
    times: Mutex<HashMap<u64, Instant>>,
}

impl DryRuns {
    /// Returns the reason for which the API server refuses to create `object` now: an invalid
    /// field, Pod Security, a quota, or a policy or webhook of the cluster. `None`: it would create
    /// the object, or nothing is known, because the API server or a webhook failed.
    pub async fn refusal<K>(&self, api: &Api<K>, object: &K) -> Option<String>
    where
        K: Clone + Debug + DeserializeOwned + Resource + Serialize,
    {
        match tried(api, object).await {
            Tried::Accepted => {
                self.0.add(self.0.key(api, object));
                None
            }
            Tried::Refused(reason) => Some(reason),
            Tried::Unknown => None,
        }
    }

    /// The same, without a request if the API server has accepted the same object in the last
    /// seconds.
    pub async fn new_refusal<K>(&self, api: &Api<K>, object: &K) -> Option<String>
    where
        K: Clone + Debug + DeserializeOwned + Resource + Serialize,
    {
        if self.0.contains(self.0.key(api, object)) {
            return None;
        }
        self.refusal(api, object).await
    }
}

impl Accepted {
    /// The key of an object. Of two objects with the same key, the second one is not tried, and its
    /// creation is refused later.
    fn key<K: Resource + Serialize>(&self, api: &Api<K>, object: &K) -> Option<u64> {
        let object = serde_json::to_vec(object).ok()?;
        Some(self.hasher.hash_one((api.resource_url(), object)))
    }

    fn add(&self, key: Option<u64>) {
        let mut times = self.times.lock();
        if times.len() >= ACCEPTED_MAX {
            times.retain(|_, time| time.elapsed() < ACCEPTED_AGE);
        }
        if let Some(key) = key.filter(|_| times.len() < ACCEPTED_MAX) {
            times.insert(key, Instant::now());
        }
    }

    fn contains(&self, key: Option<u64>) -> bool {
        let times = self.times.lock();
        let time = key.and_then(|key| times.get(&key));
        time.is_some_and(|time| time.elapsed() < ACCEPTED_AGE)
    }
}

/// What the API server says about an object.
enum Tried {
    Accepted,
    Refused(String),
    /// It did not decide.
    Unknown,
}

async fn tried<K>(api: &Api<K>, object: &K) -> Tried
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let parameters = PostParams {
        dry_run: true,
        ..requests::post()
    };
    match api.create(&parameters, object).await {
        Ok(answer) if image_volume::is_dropped(object, &answer) => {
            Tried::Refused(image_volume::DROPPED.to_owned())
        }
        Ok(_) => Tried::Accepted,
        Err(kube::Error::Api(status)) if is_refusal(&status) => {
            Tried::Refused(status.message.clone())
        }
        Err(_) => Tried::Unknown,
    }
}

/// Whether a failure is a decision about the object. In a new namespace, the account `default` and
/// the use of a quota appear a moment later. A webhook that does not support dry runs says nothing
/// about the object.
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

    #[tokio::test(start_paused = true)]
    async fn an_accepted_object_is_known_for_a_while_and_a_flood_of_them_is_bounded() {
        let accepted = Accepted::default();
        accepted.add(Some(1));
        accepted.add(None);
        assert!(accepted.contains(Some(1)));
        assert!(!accepted.contains(Some(2)) && !accepted.contains(None));
        for key in 0..2 * ACCEPTED_MAX as u64 {
            accepted.add(Some(key));
        }
        assert_eq!(accepted.times.lock().len(), ACCEPTED_MAX);
        tokio::time::advance(ACCEPTED_AGE).await;
        assert!(!accepted.contains(Some(1)));
        accepted.add(Some(u64::MAX));
        assert_eq!(accepted.times.lock().len(), 1);
    }

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
