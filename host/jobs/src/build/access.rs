//! Pure: builds the ServiceAccount, Role and RoleBinding that allow a job's launcher to exec into
//! its workers only.

use ipu_api::naming;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::{PodSettings, metadata, uses_host_network};
use crate::validate::{ValidJob, ValidLauncher};

/// Returns the name of the ServiceAccount of a launcher with rights of its own.
pub fn account_name(job: &ValidJob, launcher: &ValidLauncher) -> String {
    let chosen = launcher.service_account.clone();
    chosen.unwrap_or_else(|| naming::launcher(&job.name))
}

/// Whether a new launcher of a job uses the rights that the launchers of its namespace share.
///
/// A ServiceAccount of the user has other rights too, and is never shared. A launcher with shared
/// rights reads no Pod, so it must know the host names of its workers: on the host network, that is
/// the name of the Pod if it is short enough.
pub fn shares_rights(job: &ValidJob, settings: &PodSettings) -> bool {
    let has_account = |launcher: &ValidLauncher| launcher.service_account.is_some();
    let last = job.instances.saturating_mul(job.size.workers);
    let knows_hosts = !uses_host_network(job, settings)
        || naming::worker(&job.name, last).len() <= naming::HOST_NAME_MAX;
    settings.launcher_policy.is_some()
        && job
            .launcher
            .as_ref()
            .is_some_and(|launcher| !has_account(launcher))
        && knows_hosts
}

/// Builds the ServiceAccount of a launcher that has none of the user.
pub fn service_account(job: &ValidJob) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(job, naming::launcher(&job.name)),
        ..ServiceAccount::default()
    }
}

/// Builds the launcher's Role, with these workers of the job. A held launcher
/// follows its own Pod, whose annotation releases its command (`follows_own_pod`).
pub fn role(job: &ValidJob, workers: &[String], follows_own_pod: bool) -> Role {
    let rules = [
        rule("pods", &["get"], workers),
        // A WebSocket exec is a GET to the API server. From version 1.35 on, it requires `create`,
        // too.
        rule("pods/exec", &["get", "create"], workers),
    ];
    // A rule without names would grant the right to all Pods.
    let rules = rules.into_iter().filter(|_| !workers.is_empty());
    let own = follows_own_pod.then(|| rule("pods", &["watch"], &[naming::launcher(&job.name)]));
    Role {
        metadata: metadata(job, naming::launcher(&job.name)),
        rules: Some(rules.chain(own).collect()),
    }
}

/// Gives the account its rights.
pub fn role_binding(job: &ValidJob, launcher: &ValidLauncher) -> RoleBinding {
    let name = naming::launcher(&job.name);
    RoleBinding {
        metadata: metadata(job, name.clone()),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name,
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account_name(job, launcher),
            namespace: Some(job.namespace.clone()),
            api_group: None,
        }]),
    }
}

fn rule(resource: &str, verbs: &[&str], names: &[String]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(names.to_vec()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}
