//! Applies the rights that the launchers of a namespace share, while the admission policy binds
//! each launcher to the workers of its own job.

use std::collections::HashMap;

use ipu_runtime::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Client;
use kube::api::Api;
use parking_lot::Mutex;

use super::StepError;
use super::build::shared_rights;
use super::observe::ObserveError;
use super::plan::{Applicable, DependentKind};
use super::status::Obstacle;
use super::writes::{self, WriteError};

/// Time for which an object counts as unchanged after it was read. A user who deletes it stops the
/// launchers of this namespace for that long.
const TRUSTED: SignedDuration = SignedDuration::from_secs(30);

/// The shared rights of each namespace, and when they were read.
#[derive(Debug, Default)]
pub(super) struct SharedRights {
    read: Mutex<HashMap<Box<str>, [Timestamp; DependentKind::COUNT]>>,
}

impl SharedRights {
    /// Applies objects of a namespace that were not read lately. `policy` is the name of the
    /// admission policy. Without it, nothing is applied, and a Role that exists loses its rights.
    pub(super) async fn apply(
        &self,
        client: &Client,
        namespace: &str,
        policy: &str,
        objects: Vec<&Applicable>,
    ) -> Result<Vec<Obstacle>, StepError> {
        let now = clock::now();
        let stale = self.stale(namespace, objects, now);
        if stale.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(defect) = defect(client, policy).await? {
            self.read.lock().remove(namespace);
            let empty = shared_rights::empty_role(namespace);
            writes::shared::withdraw(client, namespace, &empty).await?;
            return Ok(vec![Obstacle::Unbound {
                object: format!("ValidatingAdmissionPolicy {policy}"),
                defect: defect.to_owned(),
            }]);
        }
        let mut obstacles = Vec::new();
        for object in stale {
            match apply(client, namespace, object).await? {
                Some(obstacle) => obstacles.push(obstacle),
                None => self.record(namespace, object.kind(), now),
            }
        }
        Ok(obstacles)
    }

    fn stale<'a>(
        &self,
        namespace: &str,
        objects: Vec<&'a Applicable>,
        now: Timestamp,
    ) -> Vec<&'a Applicable> {
        let read = self.read.lock();
        let times = read.get(namespace);
        let is_stale = |object: &&Applicable| {
            let time = times.map(|times| times[object.kind().index()]);
            time.is_none_or(|time| now.duration_since(time) >= TRUSTED)
        };
        objects.into_iter().filter(is_stale).collect()
    }

    fn record(&self, namespace: &str, kind: DependentKind, now: Timestamp) {
        let mut read = self.read.lock();
        // Namespaces come and go. What no job of a namespace has read lately is of no use.
        read.retain(|_, times| times.iter().any(|time| now.duration_since(*time) < TRUSTED));
        let never = [Timestamp::UNIX_EPOCH; DependentKind::COUNT];
        let times = read.entry(namespace.into()).or_insert(never);
        times[kind.index()] = now;
    }
}

async fn apply(
    client: &Client,
    namespace: &str,
    object: &Applicable,
) -> Result<Option<Obstacle>, WriteError> {
    match object {
        Applicable::ServiceAccount(object) => {
            writes::shared::apply(client, namespace, object).await
        }
        Applicable::Role(object) => writes::shared::apply(client, namespace, object).await,
        Applicable::RoleBinding(object) => writes::shared::apply(client, namespace, object).await,
    }
}

/// Reads the policy and its binding, which has the same name. Returns what keeps them from denying.
async fn defect(client: &Client, name: &str) -> Result<Option<&'static str>, ObserveError> {
    let failed = |source| ObserveError::LauncherPolicy(name.to_owned(), source);
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let policy = policies.get_opt(name).await.map_err(failed)?;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let binding = bindings.get_opt(name).await.map_err(failed)?;
    Ok(shared_rights::defect(policy.as_ref(), binding.as_ref()))
}
