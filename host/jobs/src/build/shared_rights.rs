//! Pure: builds the ServiceAccount, Role and RoleBinding that the launchers of a namespace share,
//! and checks the admission policy without which they would allow an exec into every Pod of the
//! namespace.

use std::collections::BTreeMap;

use ipu_api::labels;
use ipu_api::naming::SHARED_LAUNCHERS;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Builds the ServiceAccount. It has no owner, because it outlives each job.
pub fn service_account(namespace: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(namespace),
        ..ServiceAccount::default()
    }
}

/// Builds the Role. It cannot name workers, and has no `get` on Pods: admission never sees a read.
pub fn role(namespace: &str) -> Role {
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["pods/exec".to_owned()]),
        // A WebSocket exec is a GET to the API server. From version 1.35 on, it requires `create`,
        // too.
        verbs: vec!["get".to_owned(), "create".to_owned()],
        ..PolicyRule::default()
    };
    Role {
        metadata: metadata(namespace),
        rules: Some(vec![rule]),
    }
}

/// Builds the Role without any right, for a cluster that has lost the policy.
pub fn empty_role(namespace: &str) -> Role {
    Role {
        metadata: metadata(namespace),
        rules: Some(Vec::new()),
    }
}

/// Gives the account its rights.
pub fn role_binding(namespace: &str) -> RoleBinding {
    RoleBinding {
        metadata: metadata(namespace),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: SHARED_LAUNCHERS.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: SHARED_LAUNCHERS.to_owned(),
            namespace: Some(namespace.to_owned()),
            api_group: None,
        }]),
    }
}

/// Returns what keeps the policy from denying an exec, if there is something.
pub fn defect(
    policy: Option<&ValidatingAdmissionPolicy>,
    binding: Option<&ValidatingAdmissionPolicyBinding>,
) -> Option<&'static str> {
    let Some(policy) = policy.filter(|policy| policy.metadata.deletion_timestamp.is_none()) else {
        return Some("it does not exist");
    };
    let Some(binding) = binding.filter(|binding| binding.metadata.deletion_timestamp.is_none())
    else {
        return Some("its ValidatingAdmissionPolicyBinding of the same name does not exist");
    };
    let (rule, bound) = (policy.spec.as_ref(), &binding.spec);
    let mut actions = bound.validation_actions.iter();
    let denies = actions.any(|action| action == "Deny");
    let failure = rule.and_then(|rule| rule.failure_policy.as_deref());
    if failure.is_some_and(|policy| policy != "Fail") {
        Some("its failurePolicy is not Fail")
    } else if Some(&bound.policy_name) != policy.metadata.name.as_ref() {
        Some("its ValidatingAdmissionPolicyBinding names another policy")
    } else if !denies || bound.match_resources.is_some() {
        Some("its ValidatingAdmissionPolicyBinding does not deny everywhere")
    } else {
        None
    }
}

fn metadata(namespace: &str) -> ObjectMeta {
    let label = (
        labels::MANAGED_BY_LABEL.to_owned(),
        labels::MANAGED_BY.to_owned(),
    );
    ObjectMeta {
        name: Some(SHARED_LAUNCHERS.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(BTreeMap::from([label])),
        ..ObjectMeta::default()
    }
}
