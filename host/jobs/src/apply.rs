//! Carries out a plan: all writes, in the plan's order.

use futures::future::join_all;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;

use super::plan::{Applicable, Plan};
use super::report::{Applied, Obstacle};
use super::settled::Versions;
use super::watches::Views;
use super::writes::{self, Brought, WriteError};

/// Carries out a plan for a job in a namespace; `owner` is the job's UID. Where its rights are `expected` to be
/// there, they are read before they are written.
///
/// Guarantees: nothing is made twice, nothing of a stranger is touched, and a run that is killed at
/// any point is carried on by the next one.
pub async fn apply(
    client: &Client,
    namespace: &str,
    owner: &str,
    plan: &Plan,
    (objects, expected): (&[Applicable], bool),
    views: &Views,
) -> Result<Applied, WriteError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let partitions: Api<IPUPartition> = Api::all(client.clone());
    let mut obstacles = Vec::new();
    let to_make = || {
        plan.create_pods
            .iter()
            .filter_map(|pod| pod.metadata.name.as_deref())
    };
    // Until each is there. The plan makes none again that may have used its partition.
    to_make().for_each(|pod| views.unmade.insert(Uid::of(owner), pod));
    for deletion in &plan.delete_pods {
        writes::delete(&pods, deletion, owner, &views.pods).await?;
    }
    for pod in &plan.end_pods {
        writes::end_pod(&pods, pod, &views.pods).await?;
    }
    for reset in &plan.reset_partitions {
        // The view may be behind, and a Pod that it does not show goes on without a reset.
        if writes::has_pods(&pods, (owner, reset.instance), &views.pods).await? {
            continue;
        }
        writes::reset(&partitions, reset, &views.partitions).await?;
    }
    for binding in &plan.bind_partitions {
        writes::bind(&partitions, binding, &views.partitions).await?;
    }
    for partition in &plan.create_partitions {
        // The name holds the owner's UID: one that exists was made by us, for this job.
        let made = writes::create(&partitions, partition, owner, &views.partitions).await?;
        obstacles.extend(made.filter(|obstacle| !matches!(obstacle, Obstacle::Stranger { .. })));
    }
    let (in_the_way, versions) = bring_all(client, namespace, owner, objects, expected).await?;
    let blocked = !in_the_way.is_empty();
    obstacles.extend(in_the_way);
    // Pods mount and use these objects: with a stranger's, or an earlier job's, they would do what
    // that one says.
    if !blocked {
        // One after the other: where a quota has room for some of them, the first are created.
        for pod in &plan.create_pods {
            obstacles.extend(create_pod(&pods, pod, owner, views).await?);
        }
    }
    for deletion in &plan.delete_partitions {
        writes::delete(&partitions, deletion, owner, &views.partitions).await?;
    }
    Ok(Applied {
        obstacles,
        blocked,
        versions,
    })
}

/// Brings all objects about at the same time. Answers what stands in the way, and their versions.
async fn bring_all(
    client: &Client,
    namespace: &str,
    owner: &str,
    objects: &[Applicable],
    expected: bool,
) -> Result<(Vec<Obstacle>, Versions), WriteError> {
    let brought = objects
        .iter()
        .map(|object| bring_about(client, namespace, owner, object, expected));
    let brought: Vec<_> = brought.collect();
    let (mut obstacles, mut versions) = (Vec::new(), Versions::default());
    for (object, brought) in objects.iter().zip(join_all(brought).await) {
        match brought? {
            Ok(version) => versions[object.file().place()] = version,
            Err(obstacle) => obstacles.push(obstacle),
        }
    }
    Ok((obstacles, versions))
}

/// Creates a Pod. After an error it is asked for again, and found where it was made; where it has gone by then, the
/// watch has told of it.
async fn create_pod(
    pods: &Api<Pod>,
    pod: &Pod,
    owner: &str,
    views: &Views,
) -> Result<Option<Obstacle>, WriteError> {
    let made = writes::create(pods, pod, owner, &views.pods).await?;
    if made.as_ref().is_none_or(|obstacle| !obstacle.is_unmade()) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        views.unmade.remove(Uid::of(owner), name);
    }
    Ok(made)
}

async fn bring_about(
    client: &Client,
    namespace: &str,
    owner: &str,
    object: &Applicable,
    expected: bool,
) -> Brought {
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
