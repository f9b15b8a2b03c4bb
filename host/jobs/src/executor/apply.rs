//! Pure: applies a plan: all writes, in the order of the plan.

use ipu_api::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::Effects;
use crate::plan::Plan;
use crate::status::{Applied, Obstacle};

/// Applies the plan of a job. Returns the obstacles.
///
/// Guarantees: it creates no object twice, it does not change an object of another owner, and the next call continues a
/// call that was killed at any point.
pub(super) async fn apply<E: Effects>(
    plan: &Plan,
    effects: &mut E,
) -> Result<Vec<Obstacle>, E::Error> {
    // Until each exists. The plan recreates no Pod that may have used its partition.
    for pod in &plan.create_pods {
        effects.expect_uncreated(pod.metadata.name.as_deref().unwrap_or_default());
    }
    for deletion in &plan.delete_pods {
        effects.delete_pod(deletion).await?;
    }
    for pod in &plan.end_pods {
        effects.end_pod(pod).await?;
    }
    let mut obstacles = apply_to_partitions(plan, effects).await?;
    let rights = effects.apply_rights(plan).await?;
    obstacles.extend(rights.obstacles);
    let conflicts = effects.create_config_maps(&plan.create_config_maps).await?;
    let has_variables = conflicts.is_empty();
    obstacles.extend(conflicts);
    // Pods use these objects: with those of another owner, or of an earlier job, they would have other rights.
    if !rights.blocked && has_variables {
        obstacles.extend(create_pods(&plan.create_pods, effects).await?);
    }
    // The rights of the launcher precede its command.
    if let (Some(release), false) = (&plan.release_launcher, rights.blocked) {
        effects.release_launcher(release).await?;
    }
    for deletion in &plan.delete_partitions {
        effects.delete_partition(deletion).await?;
    }
    let applied = Applied {
        obstacles,
        blocked: rights.blocked,
    };
    effects.publish_writes(plan, &applied);
    Ok(applied.obstacles)
}

/// Resets, pins and requests partitions.
async fn apply_to_partitions<E: Effects>(
    plan: &Plan,
    effects: &mut E,
) -> Result<Vec<Obstacle>, E::Error> {
    for reset in &plan.reset_partitions {
        // The cache may be stale, and an instance with a Pod continues without a reset.
        if !effects.has_pods(reset.instance).await? {
            effects.reset(reset).await?;
        }
    }
    for update in &plan.pin_updates {
        effects.update_pin(update).await?;
    }
    let mut obstacles = Vec::new();
    for partition in &plan.create_partitions {
        // The name contains a hash of the owner's UID, so an existing object was created for this job.
        let obstacle = effects.create_partition(partition).await?;
        let is_of_job = |found: &Obstacle| !matches!(found, Obstacle::NotOwned { .. });
        obstacles.extend(obstacle.filter(is_of_job));
    }
    Ok(obstacles)
}

/// Creates Pods in order: if a quota allows only some of them, the first ones are created. A launcher does not take the
/// place of a worker that was refused.
async fn create_pods<E: Effects>(
    to_create: &[Pod],
    effects: &mut E,
) -> Result<Vec<Obstacle>, E::Error> {
    let mut obstacles = Vec::new();
    for pod in to_create {
        let is_worker = pod.labels().contains_key(labels::INSTANCE_LABEL);
        if is_worker || obstacles.is_empty() {
            obstacles.extend(create_pod(pod, effects).await?);
        }
    }
    Ok(obstacles)
}

/// Creates a Pod. After an error the next reconcile creates it again, and finds it if it exists. If it was deleted by
/// then, the watch has reported it.
async fn create_pod<E: Effects>(pod: &Pod, effects: &mut E) -> Result<Option<Obstacle>, E::Error> {
    let obstacle = effects.create_pod(pod).await?;
    let is_not_created = obstacle.as_ref().is_some_and(Obstacle::is_not_created);
    if !is_not_created {
        effects.expect_created(pod.metadata.name.as_deref().unwrap_or_default());
    }
    Ok(obstacle)
}
