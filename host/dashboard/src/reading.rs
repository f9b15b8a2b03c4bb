//! Reads one partition, its owner and the owner's Pods on demand; [`job`] reads one IPUJob.

mod job;

pub use self::job::job;

use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels::JOB_UID_LABEL;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};

use crate::shown::shown;
use crate::view::Around;
use crate::watches::resource;

/// Most Pods of an owner that are read.
const PODS_MAX: u32 = 200;

/// Reason why a partition cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is none of this name.
    #[error("there is no IPUPartition {0}; kubectl get ipupartitions lists them")]
    NotFound(String),
    /// The user may not read it.
    #[error(
        "the IPUPartition {name}: {words} (an admin can bind the ClusterRole ipu-operator-view with a ClusterRoleBinding)"
    )]
    Denied {
        /// Its name.
        name: String,
        /// The words of the API server.
        words: String,
    },
    /// There is no IPUJob of this name.
    #[error("there is no IPUJob {0}; kubectl get ipujobs --all-namespaces lists them")]
    NoJob(String),
    /// The user may not read the IPUJob.
    #[error("the IPUJob {job}: {words} (an admin can bind the ClusterRole view in the namespace)")]
    JobDenied {
        /// Its namespace and name.
        job: String,
        /// The words of the API server.
        words: String,
    },
    /// The API server did not answer.
    #[error("failed to read the IPUJob {0}")]
    JobFailed(String, #[source] Box<kube::Error>),
    /// The plugin cannot read its content.
    #[error(
        "this version of the plugin cannot read the IPUPartition {0}; kubectl get ipupartition {0} --output yaml can"
    )]
    Unreadable(String),
    /// The API server did not answer.
    #[error("failed to read the IPUPartition {0}")]
    Failed(String, #[source] Box<kube::Error>),
}

impl ReadError {
    fn of_job(namespace: &str, name: &str, error: kube::Error) -> Self {
        let job = format!("{namespace}/{name}");
        match error {
            kube::Error::Api(status) if [401, 403].contains(&status.code) => Self::JobDenied {
                job,
                words: shown(&status.message),
            },
            error => Self::JobFailed(job, Box::new(error)),
        }
    }
}

/// A partition.
pub async fn partition(client: &Client, name: &str) -> Result<IPUPartition, ReadError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource::<IPUPartition>());
    let object = match api.get_opt(name).await {
        Ok(Some(object)) => object,
        Ok(None) => return Err(ReadError::NotFound(name.to_owned())),
        Err(kube::Error::Api(status)) if [401, 403].contains(&status.code) => {
            return Err(ReadError::Denied {
                name: name.to_owned(),
                words: shown(&status.message),
            });
        }
        Err(source) => {
            return Err(ReadError::Failed(name.to_owned(), Box::new(source)));
        }
    };
    let parsed = object.try_parse();
    parsed.map_err(|_| ReadError::Unreadable(name.to_owned()))
}

/// The owner of a partition and its Pods. What cannot be read is named.
pub async fn around(client: &Client, partition: &IPUPartition) -> Around {
    let mut around = Around::default();
    let owner = &partition.spec.owner;
    if owner.kind == "Pod" {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &owner.namespace);
        match pods.get_opt(&owner.name).await {
            Ok(pod) => {
                let is_owner = |pod: &Pod| pod.uid().as_deref() == Some(&*owner.uid);
                around.pods = pod.into_iter().filter(is_owner).collect();
            }
            Err(error) => around.not_shown.push(read_error("the Pod", &error)),
        }
        return around;
    }
    if owner.kind != "IPUJob" {
        let kind = shown(&owner.kind);
        around.not_shown.push(format!(
            "the owner: the plugin does not know objects of kind {kind}"
        ));
        return around;
    }
    let kind = resource::<IPUJob>();
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), &owner.namespace, &kind);
    match jobs.get_opt(&owner.name).await {
        Ok(job) => around.job = job.filter(|job| job.uid().as_deref() == Some(&*owner.uid)),
        Err(error) => around.not_shown.push(read_error("the IPUJob", &error)),
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &owner.namespace);
    let of_job = ListParams::default().labels(&format!("{JOB_UID_LABEL}={}", owner.uid));
    match pods.list(&of_job.limit(PODS_MAX)).await {
        Ok(page) => {
            around.has_more_pods = page
                .metadata
                .continue_
                .is_some_and(|token| !token.is_empty());
            around.pods = page.items;
        }
        Err(error) => around.not_shown.push(read_error("the Pods", &error)),
    }
    around
}

fn read_error(what: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => format!(
            "{what}: {} (an admin can bind the ClusterRole view in the namespace)",
            shown(&status.message)
        ),
        error => format!("{what}: {}", shown(&ipu_text::explain(error))),
    }
}
