//! Pure: prunes Pods and IPUPartitions to the fields that decisions need, before the cache stores them.

use std::fmt::{self, Display, Formatter};

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_api::uid::Uid;

/// Labels that decisions read.
const LABELS: [&str; 3] = [
    labels::RUN_LABEL,
    labels::INSTANCE_LABEL,
    labels::PARTITION_ID_LABEL,
];

/// Annotations that decisions read.
const ANNOTATIONS: [&str; 2] = [
    labels::MAIN_CONTAINER_ANNOTATION,
    labels::TEMPLATE_HASH_ANNOTATION,
];

/// Reference to an IPUJob. The UID distinguishes it from other jobs of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobRef {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Uid,
}

impl Display for JobRef {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// An object that belongs to an IPUJob.
pub trait JobObject: Resource<DynamicType = ()> + Serialize + DeserializeOwned {
    /// Returns the job, from the owner reference: every user can set a label.
    fn job(&self) -> Option<JobRef>;

    /// Removes the fields that no decision needs. Ten thousand jobs have tens of thousands of Pods, and most of a Pod is
    /// its spec.
    #[must_use]
    fn prune(self) -> Self;
}

/// Returns the owning job of an object in the job's namespace.
pub fn owner(metadata: &ObjectMeta) -> Option<JobRef> {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == "IPUJob")?;
    Some(JobRef {
        namespace: metadata.namespace.as_deref()?.into(),
        name: owner.name.as_str().into(),
        uid: Uid::of(&owner.uid),
    })
}

/// Returns the index of a worker Pod's instance.
pub fn instance(pod: &Pod) -> Option<u32> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(labels::INSTANCE_LABEL)?.parse().ok()
}

impl JobObject for Pod {
    fn job(&self) -> Option<JobRef> {
        owner(&self.metadata)
    }

    fn prune(self) -> Self {
        Self {
            metadata: metadata(self.metadata),
            spec: self.spec.map(|spec| PodSpec {
                node_name: spec.node_name,
                containers: spec.containers.into_iter().take(1).map(name).collect(),
                ..PodSpec::default()
            }),
            status: self.status.map(status),
        }
    }
}

impl JobObject for IPUPartition {
    fn job(&self) -> Option<JobRef> {
        let owner = &self.spec.owner;
        (owner.kind == "IPUJob").then(|| JobRef {
            namespace: owner.namespace.as_str().into(),
            name: owner.name.as_str().into(),
            uid: Uid::of(&owner.uid),
        })
    }

    fn prune(mut self) -> Self {
        self.metadata = metadata(self.metadata);
        self
    }
}

fn metadata(full: ObjectMeta) -> ObjectMeta {
    let some = |map: Option<std::collections::BTreeMap<String, String>>, wanted: &[&str]| {
        let mut map = map?;
        map.retain(|key, _| wanted.contains(&key.as_str()));
        Some(map)
    };
    ObjectMeta {
        name: full.name,
        namespace: full.namespace,
        uid: full.uid,
        resource_version: full.resource_version,
        deletion_timestamp: full.deletion_timestamp,
        deletion_grace_period_seconds: full.deletion_grace_period_seconds,
        labels: some(full.labels, &LABELS),
        annotations: some(full.annotations, &ANNOTATIONS),
        ..ObjectMeta::default()
    }
}

fn name(container: Container) -> Container {
    Container {
        name: container.name,
        ..Container::default()
    }
}

fn status(full: PodStatus) -> PodStatus {
    let containers =
        |all: Option<Vec<ContainerStatus>>| Some(all?.into_iter().map(container_status).collect());
    PodStatus {
        phase: full.phase,
        reason: full.reason,
        message: full.message,
        conditions: full.conditions,
        init_container_statuses: containers(full.init_container_statuses),
        container_statuses: containers(full.container_statuses),
        ..PodStatus::default()
    }
}

fn container_status(full: ContainerStatus) -> ContainerStatus {
    ContainerStatus {
        name: full.name,
        state: full.state,
        ready: full.ready,
        restart_count: full.restart_count,
        ..ContainerStatus::default()
    }
}
