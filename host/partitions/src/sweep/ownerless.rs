//! Deletes IPUPartitions of IPUJobs that are gone.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::object_names;
use ipu_api::uid::Uid;
use ipu_runtime::scope::Scope;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Client, ResourceExt};

use super::{SweepError, lists};

/// Those of `suspects` whose owner is not among the living.
pub(super) async fn gone(
    client: &Client,
    mut suspects: Vec<IPUPartition>,
) -> Result<Vec<IPUPartition>, SweepError> {
    if !suspects.is_empty() {
        // Read after the IPUPartitions were: an owner that has made one since is among them.
        let living = lists::living_jobs(client).await?;
        suspects.retain(|one| !living.contains(&Uid::of(&one.spec.owner.uid)));
    }
    Ok(suspects)
}

/// Whether it is this release's to judge whether the owner is gone. Owners of kinds other than IPUJob are
/// never judged: who made them knows when they end.
pub(super) fn is_to_judge(partition: &IPUPartition, scope: &Scope) -> bool {
    let owner = &partition.spec.owner;
    let is_known = owner.kind == "IPUJob" && owner.api_version == ipu_api::API_VERSION;
    is_known && scope.contains(&owner.namespace) && partition.metadata.deletion_timestamp.is_none()
}

/// Deletes one, unless its owner is found when it is looked for by name.
pub(super) async fn delete(client: &Client, partition: &IPUPartition) -> Result<(), SweepError> {
    let (name, owner) = (partition.name_any(), &partition.spec.owner);
    // What was written by hand may hold anything: an owner that cannot exist is not looked for.
    if object_names::can_exist(owner) {
        let found = Api::<IPUJob>::namespaced(client.clone(), &owner.namespace)
            .get_metadata_opt(&owner.name)
            .await
            .map_err(|source| SweepError::GetOwner {
                partition: name.clone(),
                source,
            })?;
        if found.is_some_and(|job| job.metadata.uid.as_ref() == Some(&owner.uid)) {
            return Ok(());
        }
    }
    tracing::info!(
        partition = name,
        owner = owner.name,
        "deleting it, since its owner is gone"
    );
    let exactly = DeleteParams {
        preconditions: Some(Preconditions {
            uid: partition.uid(),
            resource_version: partition.resource_version(),
        }),
        ..DeleteParams::default()
    };
    match Api::<IPUPartition>::all(client.clone())
        .delete(&name, &exactly)
        .await
    {
        Ok(_) => Ok(()),
        // Changed or gone meanwhile: the next sweep looks again.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(source) => Err(SweepError::Delete {
            partition: name,
            source,
        }),
    }
}
