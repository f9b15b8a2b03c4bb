//! Pure: the phase of a policy, and its reason for the admin.

use ipu_api::ipupolicy::{Hook, IPUPolicy, IPUPolicyStatus, Mode, PolicyPhase};
use kube::ResourceExt;

use super::HookReplicas;
use crate::active_set::{ActiveSet, Inactive};
use crate::observed_policy::ObservedPolicy;
use crate::report::{Readiness, spec_of};

/// Returns the phase of a policy, and the reason for it.
pub(super) fn of(
    status: &IPUPolicyStatus,
    observed: &ObservedPolicy,
    replicas: &HookReplicas<'_>,
    active_set: &ActiveSet,
) -> (PolicyPhase, String) {
    if let Some(back) = status
        .rolled_back
        .as_ref()
        .filter(|back| back.generation == replicas.desired)
    {
        let now = match refusal(status, replicas) {
            Some((replica, reason)) => {
                format!("{replica} refuses the previous version, so spec.onError decides: {reason}")
            }
            None => "the previous version is active again".to_owned(),
        };
        let message = format!("{}; {now}. Change spec to try again", back.reason);
        return (PolicyPhase::RolledBack, message);
    }
    let policy = &observed.policy;
    let before = before(status, observed, replicas);
    if let Some(reason) = &observed.unreadable {
        let message = format!(
            "{reason}; {before}. Upgrade the operator to the version of its CRDs, or change the field"
        );
        return (PolicyPhase::Refused, message);
    }
    if let Some((replica, reason)) = replicas.problem(replicas.desired, true) {
        let message = format!("{replica} refuses the module, and {before}: {reason}");
        return (PolicyPhase::Refused, message);
    }
    let active = status
        .active
        .as_ref()
        .filter(|revision| revision.generation == replicas.desired);
    let Some(revision) = active else {
        return (
            PolicyPhase::Loading,
            loading_message(policy, replicas, before),
        );
    };
    match active_set.inactive.get(&policy.name_any()) {
        Some(Inactive::Refused(why)) => return (PolicyPhase::Refused, why.clone()),
        Some(Inactive::Replaced(by)) => {
            let message = format!("the guest of IPUPolicy {by} decides in its place");
            return (PolicyPhase::Replaced, message);
        }
        None => {}
    }
    let message = match replicas.problem(replicas.desired, false) {
        Some((replica, reason)) => format!("{replica} has not loaded the module: {reason}"),
        None if revision.promoted => {
            "promoted after the number of equal answers in spec.shadow.promoteAfter".to_owned()
        }
        None => String::new(),
    };
    if policy.spec.mode == Mode::Shadow && !revision.promoted {
        return (PolicyPhase::Shadow, message);
    }
    (PolicyPhase::Active, message)
}

/// Describes what decides until the desired version is active.
fn before(
    status: &IPUPolicyStatus,
    observed: &ObservedPolicy,
    replicas: &HookReplicas<'_>,
) -> &'static str {
    let active = status.active.as_ref();
    if refusal(status, replicas).is_some() {
        let is_desired = active.is_some_and(|active| active.generation == replicas.desired);
        return if is_desired {
            "spec.onError decides"
        } else {
            "the previous version is refused too, so spec.onError decides"
        };
    }
    match active.map(|revision| spec_of(revision).is_ok()) {
        Some(true) => "the previous version stays active",
        Some(false) => "the previous version cannot be read either, so spec.onError decides",
        None if observed.policy.spec.makes_wait() => {
            "no version is active, so matching requests wait (spec.untilActive)"
        }
        None if observed.unreadable.is_some() => "no version is active, so spec.onError decides",
        None => "no version is active",
    }
}

/// Returns the replica that refuses the active version, and why: no key that signed it counts any
/// more.
fn refusal<'a>(
    status: &IPUPolicyStatus,
    replicas: &HookReplicas<'a>,
) -> Option<(&'a str, &'a str)> {
    let active = status.active.as_ref()?;
    replicas.problem(active.generation, true)
}

fn loading_message(policy: &IPUPolicy, replicas: &HookReplicas<'_>, before: &str) -> String {
    if replicas.readiness.is_empty() {
        let process = match policy.spec.hook {
            Hook::Defaulting | Hook::Validation => "controller",
            Hook::Placement => "vipu-proxy",
        };
        return format!("no replica of the {process} runs");
    }
    if let Some((replica, reason)) = replicas.problem(replicas.desired, false) {
        return format!("{replica} has not loaded the module yet, and {before}: {reason}");
    }
    let is_ready = |readiness: &Readiness| readiness.prepared.contains_key(&replicas.desired);
    let slow = replicas
        .readiness
        .iter()
        .filter(|(_, readiness)| !readiness.is_some_and(is_ready));
    let names: Vec<&str> = slow.map(|(replica, _)| *replica).collect();
    if names.is_empty() {
        return "the replicas found different modules; set module.digest to the digest of the intended one"
            .to_owned();
    }
    format!("{before}; the module is loading on {}", names.join(", "))
}
