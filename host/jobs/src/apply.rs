//! Applies a plan: all writes, in the order of the plan.

use futures::future::join_all;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_api::uid::Uid;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::Api;
use kube::{Client, ResourceExt};

use super::job_object::job_uid;
use super::plan::{Applicable, DependentKind, Plan};
use super::status::{Applied, Obstacle};
use super::verified::Versions;
use super::views::Views;
use super::writes::{self, ApplyResult, WriteError};

/// The rights of a launcher to read and, if they differ, to write.
pub struct StaleRights {
    /// The objects.
    pub objects: Vec<Applicable>,
    /// By kind: whether an object is expected to exist. Such an object is read before it is written.
    pub expected: [bool; DependentKind::COUNT],
}

/// The result of applying the rights.
struct AppliedRights {
    obstacles: Vec<Obstacle>,
    /// Whether one of the obstacles is an object that Pods use.
    blocked: bool,
    versions: Versions,
}

/// Applies the plan of a job in a namespace. `owner` is the job's UID.
///
/// Guarantees: it creates no object twice, it does not change an object of another owner, and the next call continues a
/// call that was killed at any point.
pub async fn apply(
    client: &Client,
    namespace: &str,
    owner: &str,
    plan: &Plan,
    rights: &StaleRights,
    views: &Views,
) -> Result<Applied, WriteError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let partitions: Api<IPUPartition> = Api::all(client.clone());
    let mut obstacles = Vec::new();
    let to_create = || {
        plan.create_pods
            .iter()
            .filter_map(|pod| pod.metadata.name.as_deref())
    };
    // Until each exists. The plan recreates no Pod that may have used its partition.
    let job = job_uid(namespace, owner);
    to_create().for_each(|pod| views.uncreated.insert(job, pod));
    for deletion in &plan.delete_pods {
        writes::delete(&pods, deletion, job, &views.pods).await?;
    }
    for pod in &plan.end_pods {
        writes::end_pod(&pods, pod, &views.pods).await?;
    }
    for reset in &plan.reset_partitions {
        // The cache may be stale, and an instance with a Pod continues without a reset.
        if writes::has_pods(&pods, (owner, reset.instance), &views.pods).await? {
            continue;
        }
        writes::reset(&partitions, reset, &views.partitions).await?;
    }
    for update in &plan.pin_updates {
        writes::update_pin(&partitions, update, &views.partitions).await?;
    }
    for partition in &plan.create_partitions {
        // The name contains a hash of the owner's UID, so an existing object was created for this job.
        let obstacle = writes::create(&partitions, partition, owner, &views.partitions).await?;
        obstacles
            .extend(obstacle.filter(|obstacle| !matches!(obstacle, Obstacle::NotOwned { .. })));
    }
    let applied = apply_rights(client, namespace, owner, plan, rights).await?;
    obstacles.extend(applied.obstacles);
    let conflicts = create_config_maps(client, namespace, owner, &plan.create_config_maps).await?;
    let has_variables = conflicts.is_empty();
    obstacles.extend(conflicts);
    // Pods use these objects: with those of another owner, or of an earlier job, they would have other rights.
    if !applied.blocked && has_variables {
        obstacles.extend(create_pods(&pods, &plan.create_pods, (owner, job), views).await?);
    }
    // The rights of the launcher precede its command.
    if let (Some(release), false) = (&plan.release_launcher, applied.blocked) {
        writes::release(&pods, release, &views.pods).await?;
    }
    for deletion in &plan.delete_partitions {
        writes::delete(&partitions, deletion, job, &views.partitions).await?;
    }
    Ok(Applied {
        obstacles,
        blocked: applied.blocked,
        versions: applied.versions,
    })
}

/// Creates the ConfigMaps concurrently. They never change, so an existing one of the job is the desired one.
async fn create_config_maps(
    client: &Client,
    namespace: &str,
    owner: &str,
    config_maps: &[ConfigMap],
) -> Result<Vec<Obstacle>, WriteError> {
    let creating = config_maps
        .iter()
        .map(|object| writes::apply(client, namespace, object, owner, false));
    let created: Result<Vec<_>, _> = join_all(creating).await.into_iter().collect();
    Ok(created?.into_iter().filter_map(Result::err).collect())
}

/// Applies all objects concurrently.
async fn apply_rights(
    client: &Client,
    namespace: &str,
    owner: &str,
    plan: &Plan,
    rights: &StaleRights,
) -> Result<AppliedRights, WriteError> {
    let objects = &rights.objects;
    let applying = objects.iter().map(|object| {
        let expected = rights.expected[object.kind().index()];
        apply_object(client, namespace, owner, object, expected)
    });
    let applying: Vec<_> = applying.collect();
    let mut all = AppliedRights {
        obstacles: Vec::new(),
        blocked: false,
        versions: Versions::default(),
    };
    for (object, applied) in objects.iter().zip(join_all(applying).await) {
        match applied? {
            Ok(version) => all.versions[object.kind().index()] = version,
            Err(obstacle) => {
                // No Pod uses a Role that is withdrawn.
                all.blocked |= plan.withdraw.as_ref() != Some(object);
                all.obstacles.push(obstacle);
            }
        }
    }
    Ok(all)
}

/// Creates Pods in order: if a quota allows only some of them, the first ones are created. A launcher does not take the
/// place of a worker that was refused.
async fn create_pods(
    pods: &Api<Pod>,
    to_create: &[Pod],
    owner: (&str, Uid),
    views: &Views,
) -> Result<Vec<Obstacle>, WriteError> {
    let mut obstacles = Vec::new();
    for pod in to_create {
        let is_worker = pod.labels().contains_key(labels::INSTANCE_LABEL);
        if is_worker || obstacles.is_empty() {
            obstacles.extend(create_pod(pods, pod, owner, views).await?);
        }
    }
    Ok(obstacles)
}

/// Creates a Pod. After an error the next reconcile creates it again, and finds it if it exists. If it was deleted by
/// then, the watch has reported it.
async fn create_pod(
    pods: &Api<Pod>,
    pod: &Pod,
    (owner, job): (&str, Uid),
    views: &Views,
) -> Result<Option<Obstacle>, WriteError> {
    let obstacle = writes::create(pods, pod, owner, &views.pods).await?;
    if obstacle
        .as_ref()
        .is_none_or(|obstacle| !obstacle.is_not_created())
    {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        views.uncreated.remove(job, name);
    }
    Ok(obstacle)
}

async fn apply_object(
    client: &Client,
    namespace: &str,
    owner: &str,
    object: &Applicable,
    expected: bool,
) -> ApplyResult {
    match object {
        Applicable::ServiceAccount(object) => {
            writes::apply(client, namespace, object, owner, expected).await
        }
        Applicable::Role(object) => writes::apply(client, namespace, object, owner, expected).await,
        Applicable::RoleBinding(object) => {
            writes::apply(client, namespace, object, owner, expected).await
        }
    }
}
