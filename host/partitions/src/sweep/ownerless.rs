//! Deletes IPUPartitions of IPUJobs, of native Pods, and of Workloads of Kueue that are gone.

use std::collections::HashSet;

use ipu_api::dns1123;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::{IPUPartition, PartitionOwner};
use ipu_api::labels::{NATIVE_POD_LABEL, POD_UID_LABEL, WORKLOAD_UID_LABEL};
use ipu_api::queueing;
use ipu_api::uid::Uid;
use ipu_runtime::api_client;
use ipu_runtime::requests;
use ipu_runtime::scope::Scope;
use ipu_runtime::trimmed::Trimmed;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};

use super::lists::Metadata;
use super::{SweepError, lists};

/// An owner whose end the operator can determine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    IPUJob,
    NativePod,
    /// A Workload of Kueue. Its native Pods claim its partitions.
    Workload,
}

impl Owner {
    /// The owner of an IPUPartition. `None`: only the client that created the IPUPartition can
    /// determine the end of its owner. That includes Pods, unless the operator created the
    /// IPUPartition: a client may request a partition before it creates the Pod.
    fn of(partition: &IPUPartition) -> Option<Self> {
        let owner = &partition.spec.owner;
        match (owner.api_version.as_str(), owner.kind.as_str()) {
            (ipu_api::API_VERSION, "IPUJob") => Some(Self::IPUJob),
            ("v1", "Pod") if partition.labels().contains_key(POD_UID_LABEL) => {
                Some(Self::NativePod)
            }
            (_, "Workload") if partition.labels().contains_key(WORKLOAD_UID_LABEL) => {
                Some(Self::Workload)
            }
            _ => None,
        }
    }

    fn kind(self) -> ApiResource {
        match self {
            Self::IPUJob => ApiResource::erase::<IPUJob>(&()),
            Self::NativePod => ApiResource::erase::<Pod>(&()),
            Self::Workload => ApiResource::from_gvk(&GroupVersionKind::gvk(
                queueing::GROUP,
                queueing::VERSION,
                "Workload",
            )),
        }
    }

    /// The UIDs of all that exist. A Pod that has lost the label is read by its name.
    async fn living(self, client: &Client) -> Result<HashSet<Uid>, SweepError> {
        let (what, labels) = match self {
            Self::IPUJob => ("the IPUJobs", None),
            Self::NativePod => ("the Pods that request IPUs", Some(NATIVE_POD_LABEL)),
            Self::Workload => ("the Workloads of Kueue, which own IPUPartitions", None),
        };
        let all = Api::<Metadata>::all_with(client.clone(), &self.kind());
        match lists::uids(&all, labels).await {
            // Without Kueue there are none.
            Err(kube::Error::Api(status)) if status.code == 404 && self == Self::Workload => {
                Ok(HashSet::new())
            }
            listed => listed.map_err(|source| SweepError::List(what, source)),
        }
    }

    /// The UID of the object of this name.
    async fn uid(self, client: &Client, owner: &PartitionOwner) -> kube::Result<Option<String>> {
        let (client, kind) = (client.clone(), self.kind());
        let all = Api::<Metadata>::namespaced_with(client, &owner.namespace, &kind);
        let found = api_client::with_timeout(all.get_opt(&owner.name)).await?;
        Ok(found.and_then(|one| one.uid()))
    }
}

/// The IPUPartitions of `suspects` without an existing owner, for each kind of owner, or the error
/// of the check.
pub(super) async fn without_owner(
    client: &Client,
    suspects: Vec<IPUPartition>,
) -> [Result<Vec<IPUPartition>, SweepError>; 3] {
    let is_of = |kind: Owner| move |one: &IPUPartition| Owner::of(one) == Some(kind);
    let (of_workloads, others): (Vec<_>, Vec<_>) =
        suspects.into_iter().partition(is_of(Owner::Workload));
    let (of_jobs, of_pods) = others.into_iter().partition(is_of(Owner::IPUJob));
    [
        gone_of(client, Owner::IPUJob, of_jobs).await,
        gone_of(client, Owner::NativePod, of_pods).await,
        gone_of_workloads(client, of_workloads).await,
    ]
}

/// The IPUPartitions without an existing Workload, and without an existing Pod that has claimed
/// them.
async fn gone_of_workloads(
    client: &Client,
    suspects: Vec<IPUPartition>,
) -> Result<Vec<IPUPartition>, SweepError> {
    let mut gone = gone_of(client, Owner::Workload, suspects).await?;
    let claim = |one: &IPUPartition| one.labels().get(POD_UID_LABEL).map(|uid| Uid::of(uid));
    if gone.iter().any(|one| claim(one).is_some()) {
        let living = Owner::NativePod.living(client).await?;
        gone.retain(|one| claim(one).is_none_or(|pod| !living.contains(&pod)));
    }
    Ok(gone)
}

async fn gone_of(
    client: &Client,
    kind: Owner,
    mut suspects: Vec<IPUPartition>,
) -> Result<Vec<IPUPartition>, SweepError> {
    if !suspects.is_empty() {
        // Read after the IPUPartitions were: an owner that has made one since is among them.
        let living = kind.living(client).await?;
        suspects.retain(|one| !living.contains(&Uid::of(&one.spec.owner.uid)));
    }
    Ok(suspects)
}

/// Whether this release decides if the owner is gone.
pub(super) fn is_to_judge(partition: &IPUPartition, scope: &Scope) -> bool {
    let owner = &partition.spec.owner;
    Owner::of(partition).is_some()
        && scope.contains(&owner.namespace)
        && partition.metadata.deletion_timestamp.is_none()
}

/// Deletes one, unless its owner is found by name.
pub(super) async fn delete(client: &Client, partition: &IPUPartition) -> Result<(), SweepError> {
    let (name, owner) = (partition.name_any(), &partition.spec.owner);
    // An object that a user wrote may contain anything: an owner that cannot exist is not read.
    if dns1123::can_exist(owner) {
        let found = match Owner::of(partition) {
            Some(kind) => kind.uid(client, owner).await,
            None => return Ok(()),
        };
        let found = found.map_err(|source| SweepError::GetOwner(name.clone(), source))?;
        if found.as_ref() == Some(&owner.uid) {
            return Ok(());
        }
    }
    tracing::info!(
        partition = name,
        owner = owner.name,
        "deleting it, since its owner is gone"
    );
    let exactly = requests::delete(partition.uid(), partition.resource_version());
    let api = Api::<Trimmed<IPUPartition>>::all(client.clone());
    match api_client::with_timeout(api.delete(&name, &exactly)).await {
        Ok(_) => Ok(()),
        // Changed or gone meanwhile: the next sweep checks it again.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(source) => Err(SweepError::Delete(name, source)),
    }
}
