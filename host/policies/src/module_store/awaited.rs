//! Pure: the new policies whose matching requests wait until this replica calls their guests
//! (`spec.untilActive`).

use std::sync::Arc;

use ipu_api::ipupolicy::{Hook, IPUPolicySpec};
use kube::ResourceExt;

use super::failed::Failed;
use super::{ModuleStore, VersionState};
use crate::bound_policy::AwaitedPolicy;
use crate::matcher::Matcher;
use crate::observed_policy::ObservedPolicy;
use crate::report::spec_of;

impl ModuleStore {
    /// Returns the policies of a hook for which requests wait: no version is active, or this
    /// replica has not loaded the active one yet. About a version that it refuses after the
    /// activation, `onError` decides.
    pub fn awaited(&self, policies: &[ObservedPolicy], hook: Hook) -> Vec<AwaitedPolicy> {
        let of_hook = policies
            .iter()
            .filter(|observed| observed.policy.spec.hook == hook);
        of_hook
            .filter_map(|observed| self.awaited_policy(observed))
            .collect()
    }

    fn awaited_policy(&self, observed: &ObservedPolicy) -> Option<AwaitedPolicy> {
        let policy = &observed.policy;
        if policy.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let status = policy.status.as_ref();
        let (generation, spec, reason) = match status.and_then(|status| status.active.as_ref()) {
            None => {
                let generation = policy.metadata.generation.unwrap_or_default();
                let reason = self.why_inactive(observed, generation);
                (generation, policy.spec.clone(), reason)
            }
            Some(active) => {
                let spec = spec_of(active).ok()?;
                let reason = self.why_not_loaded(&policy.uid()?, active.generation)?;
                (active.generation, spec, reason)
            }
        };
        if !spec.makes_wait() {
            return None;
        }
        Some(AwaitedPolicy {
            name: policy.name_any().into(),
            matcher: self.matcher_of(policy.uid()?, generation, &spec),
            reason,
        })
    }

    /// Returns why no version of a policy is active.
    fn why_inactive(&self, observed: &ObservedPolicy, generation: i64) -> String {
        if let Some(reason) = &observed.unreadable {
            return reason.clone();
        }
        let version = (observed.policy.uid().unwrap_or_default(), generation);
        match self.versions.get(&version) {
            Some(VersionState::Failed(failed)) => failed.problem.reason.clone(),
            Some(VersionState::Ready(_)) => {
                "its module is loaded here, and other replicas are loading it".to_owned()
            }
            Some(VersionState::Preparing) | None => "its module is being loaded".to_owned(),
        }
    }

    /// Returns why this replica has not loaded the active version yet. `None`: it calls it, or
    /// refuses it.
    fn why_not_loaded(&self, uid: &str, generation: i64) -> Option<String> {
        match self.versions.get(&(uid.to_owned(), generation)) {
            Some(VersionState::Ready(_)) => None,
            Some(VersionState::Failed(Failed { problem, .. })) => {
                (!problem.is_final).then(|| problem.reason.clone())
            }
            Some(VersionState::Preparing) | None => Some("its module is being loaded".to_owned()),
        }
    }

    /// Returns `spec.match`, or its selectors alone if its conditions are invalid.
    fn matcher_of(&self, uid: String, generation: i64, spec: &IPUPolicySpec) -> Arc<Matcher> {
        self.matcher(&(uid, generation))
            .unwrap_or_else(|_| Arc::new(Matcher::of_selectors(spec.match_.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::ipupolicy::IPUPolicy;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::module_store::Failure;
    use crate::report::desired_versions;

    /// A policy of generation 1, with this change.
    fn policy(change: &Value) -> ObservedPolicy {
        let mut policy = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
            "metadata": {"name": "mine", "uid": "u", "generation": 1},
            "spec": {
                "hook": "Validation", "module": {"image": {"file": "x.wasm"}}, "untilActive": "Wait",
            },
        });
        json_patch::merge(&mut policy, change);
        let policy: IPUPolicy = serde_json::from_value(policy).unwrap();
        policy.into()
    }

    /// The same policy, whose version is active.
    fn active() -> ObservedPolicy {
        let spec = serde_json::to_value(policy(&json!({})).policy.spec).unwrap();
        policy(&json!({"status": {"active": {
            "generation": 1, "digest": "sha256:1", "since": "2026-01-01T12:00:00Z", "spec": spec,
        }}}))
    }

    /// The reason for which requests wait, after this replica failed to prepare the version
    /// (`is_final`).
    fn reason(observed: &ObservedPolicy, failed: Option<bool>) -> Option<String> {
        let (mut store, now) = (ModuleStore::default(), Instant::now());
        store.start_due(desired_versions([observed].into_iter(), &Hook::ALL), now);
        if let Some(is_final) = failed {
            let failure = Failure {
                reason: "the registry is down".to_owned(),
                is_final,
                is_retryable: true,
                signature: None,
            };
            store.finish(&("u".to_owned(), 1), Err(failure), now);
        }
        let mut awaited = store.awaited(std::slice::from_ref(observed), Hook::Validation);
        assert!(
            store
                .awaited(std::slice::from_ref(observed), Hook::Defaulting)
                .is_empty()
        );
        awaited.pop().map(|awaited| awaited.reason)
    }

    #[test]
    fn requests_wait_for_a_new_policy_that_says_so_and_for_no_other() {
        let loading = Some("its module is being loaded".to_owned());
        let down = Some("the registry is down".to_owned());
        assert_eq!(reason(&policy(&json!({})), None), loading);
        for is_final in [false, true] {
            assert_eq!(reason(&policy(&json!({})), Some(is_final)), down);
        }
        for change in [
            json!({"spec": {"untilActive": null}}),
            json!({"spec": {"untilActive": "Ignore"}}),
            json!({"spec": {"mode": "Shadow"}}),
            json!({"spec": {"hook": "Defaulting"}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"}}),
        ] {
            assert_eq!(reason(&policy(&change), None), None, "{change}");
        }
    }

    #[test]
    fn requests_wait_for_an_active_policy_until_this_replica_has_loaded_or_refused_it() {
        assert_eq!(
            reason(&active(), None).as_deref(),
            Some("its module is being loaded")
        );
        assert_eq!(
            reason(&active(), Some(false)).as_deref(),
            Some("the registry is down")
        );
        assert_eq!(reason(&active(), Some(true)), None, "onError decides");
    }

    #[test]
    fn an_unreadable_policy_is_awaited_with_the_reason() {
        let unreadable = ObservedPolicy {
            unreadable: Some("cannot read spec.mode".to_owned()),
            ..policy(&json!({}))
        };
        assert_eq!(
            reason(&unreadable, None).as_deref(),
            Some("cannot read spec.mode")
        );
    }
}
