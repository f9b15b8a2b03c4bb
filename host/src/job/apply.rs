//! Carries out a plan: all writes, in the plan's order.

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;

use super::plan::{Applicable, Plan};
use super::report::{Applied, Obstacle};
use super::watches::Views;
use super::writes::{self, WriteError, Written};
use crate::api::ipupartition::IPUPartition;

/// Carries out a plan for a job in a namespace; `owner` is the job's UID.
///
/// Guarantees: nothing is made twice, nothing of a stranger is touched, and a run that is killed at
/// any point is carried on by the next one.
pub async fn apply(
    client: &Client,
    namespace: &str,
    owner: &str,
    plan: &Plan,
    objects: &[Applicable],
    views: &Views,
) -> Result<Applied, WriteError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let partitions: Api<IPUPartition> = Api::all(client.clone());
    let mut obstacles = Vec::new();
    for deletion in &plan.delete_pods {
        writes::delete(&pods, deletion, owner, &views.pods).await?;
    }
    for pod in &plan.end_pods {
        writes::end_pod(&pods, pod, &views.pods).await?;
    }
    for reset in &plan.reset_partitions {
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
    // They are made with the first Pods.
    let expected = plan.create_pods.is_empty();
    let mut blocked = false;
    for object in objects {
        let obstacle = bring_about(client, namespace, owner, object, expected).await?;
        blocked |= obstacle.is_some();
        obstacles.extend(obstacle);
    }
    // Pods mount and use these objects: with a stranger's, or an earlier job's, they would do what
    // that one says.
    if !blocked {
        for pod in &plan.create_pods {
            obstacles.extend(writes::create(&pods, pod, owner, &views.pods).await?);
        }
    }
    for deletion in &plan.delete_partitions {
        writes::delete(&partitions, deletion, owner, &views.partitions).await?;
    }
    Ok(Applied { obstacles, blocked })
}

async fn bring_about(
    client: &Client,
    namespace: &str,
    owner: &str,
    object: &Applicable,
    expected: bool,
) -> Written {
    match object {
        Applicable::ConfigMap(object) => {
            writes::apply(client, namespace, object, owner, expected).await
        }
        Applicable::ServiceAccount(object) => {
            writes::apply(client, namespace, object, owner, expected).await
        }
        Applicable::Role(object) => writes::apply(client, namespace, object, owner, expected).await,
        Applicable::RoleBinding(object) => {
            writes::apply(client, namespace, object, owner, expected).await
        }
    }
}
