//! Pure: applies a plan: all writes, in the order of the plan.

use ipu_api::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::Effects;
use crate::plan::{DependentKind, Plan};
use crate::status::{Applied, Obstacle};

/// Applies the plan of a job. Returns the obstacles.
///
/// Guarantees: it creates no object twice, it does not change an object of another owner, and the
/// next call continues a call that was killed at any point.
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
    let (before_pods, after_pods) = rights_by_time(plan);
    let rights = effects.apply_rights(plan, before_pods).await?;
    obstacles.extend(rights.obstacles);
    let conflicts = effects.create_config_maps(&plan.create_config_maps).await?;
    let has_variables = conflicts.is_empty();
    obstacles.extend(conflicts);
    // Pods use these objects: with those of another owner, or of an earlier job, they would have
    // other rights.
    if !rights.blocked && has_variables {
        obstacles.extend(create_pods(plan, effects).await?);
    }
    let bindings = effects.apply_rights(plan, after_pods).await?;
    obstacles.extend(bindings.obstacles);
    let is_blocked = rights.blocked || bindings.blocked;
    // The rights of the launcher precede its command.
    if let (Some(release), false) = (&plan.release_launcher, is_blocked) {
        effects.release_launcher(release).await?;
    }
    for deletion in &plan.delete_partitions {
        effects.delete_partition(deletion).await?;
    }
    let applied = Applied {
        obstacles,
        blocked: is_blocked,
    };
    effects.publish_writes(plan, &applied);
    Ok(applied.obstacles)
}

/// The kinds of rights that are applied before the Pods and after them. The API server allows a
/// RoleBinding only when its authorizer knows the Role, a moment after the Role was created. A
/// launcher that is held back needs its rights only at its release.
fn rights_by_time(plan: &Plan) -> (&'static [DependentKind], &'static [DependentKind]) {
    const OBJECTS: [DependentKind; 2] = [DependentKind::ServiceAccount, DependentKind::Role];
    const BINDINGS: [DependentKind; 1] = [DependentKind::RoleBinding];
    let mut created = plan.create_pods.iter();
    if created.all(|pod| is_worker(pod) || is_held(pod)) {
        (&OBJECTS, &BINDINGS)
    } else {
        (&DependentKind::ALL, &[])
    }
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
        // The name contains a hash of the owner's UID, so an existing object was created for this
        // job.
        let obstacle = effects.create_partition(partition).await?;
        let is_of_job = |found: &Obstacle| !matches!(found, Obstacle::NotOwned { .. });
        obstacles.extend(obstacle.filter(is_of_job));
    }
    Ok(obstacles)
}

/// Creates Pods in order: if a quota allows only some of them, the first ones are created. A
/// launcher does not take the place of a worker that was refused.
async fn create_pods<E: Effects>(plan: &Plan, effects: &mut E) -> Result<Vec<Obstacle>, E::Error> {
    let mut obstacles = Vec::new();
    for pod in &plan.create_pods {
        if is_worker(pod) {
            obstacles.extend(create_pod(pod, effects).await?);
        } else if obstacles.is_empty() {
            let otherwise = plan.launcher_otherwise.as_deref();
            obstacles.extend(create_launcher(pod, otherwise, effects).await?);
        }
    }
    Ok(obstacles)
}

/// Creates the launcher, in its other form if the API server refuses the usual one.
async fn create_launcher<E: Effects>(
    usual: &Pod,
    otherwise: Option<&Pod>,
    effects: &mut E,
) -> Result<Option<Obstacle>, E::Error> {
    let refused = create_pod(usual, effects).await?;
    if let (Some(Obstacle::Refused { .. }), Some(otherwise)) = (&refused, otherwise) {
        let obstacle = create_pod(otherwise, effects).await?;
        let is_refused = matches!(obstacle, Some(Obstacle::Refused { .. }));
        return Ok(if is_refused { refused } else { obstacle });
    }
    Ok(refused)
}

/// Whether the agent holds the command of a launcher back.
fn is_held(pod: &Pod) -> bool {
    let hold = pod.annotations().get(labels::START_ANNOTATION);
    hold.is_some_and(|hold| hold == labels::HELD)
}

fn is_worker(pod: &Pod) -> bool {
    pod.labels().contains_key(labels::INSTANCE_LABEL)
}

/// Creates a Pod. After an error the next reconcile creates it again, and finds it if it exists. If
/// it was deleted by then, the watch has reported it.
async fn create_pod<E: Effects>(pod: &Pod, effects: &mut E) -> Result<Option<Obstacle>, E::Error> {
    let obstacle = effects.create_pod(pod).await?;
    let is_not_created = obstacle.as_ref().is_some_and(Obstacle::is_not_created);
    if !is_not_created {
        effects.expect_created(pod.metadata.name.as_deref().unwrap_or_default());
    }
    Ok(obstacle)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn a_role_binding_waits_for_the_pods_unless_the_command_of_a_launcher_starts_with_them() {
        let worker = pod(&json!({"labels": {labels::INSTANCE_LABEL: "0"}}));
        let held = pod(&json!({"annotations": {labels::START_ANNOTATION: labels::HELD}}));
        let at_once = pod(&json!({}));
        for (pods, is_later) in [
            (vec![], true),
            (vec![worker.clone()], true),
            (vec![worker.clone(), held], true),
            (vec![worker, at_once], false),
        ] {
            let plan = Plan {
                create_pods: pods,
                ..Plan::default()
            };
            let (before, after) = rights_by_time(&plan);
            assert_eq!(after.contains(&DependentKind::RoleBinding), is_later);
            let mut all = [before, after].concat();
            all.sort_unstable_by_key(|kind| kind.index());
            assert_eq!(all, DependentKind::ALL, "each once");
        }
    }
}
