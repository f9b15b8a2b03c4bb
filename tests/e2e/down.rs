//! A V-IPU controller that does not answer: what fits elsewhere goes on, the rest waits and says why.

use cluster::wait::{Seen, until};
use ipu_api::ipujob::IPUJob;
use kube::Api;
use libtest_mimic::Failed;

use crate::scene::{PATIENCE, Scene};

/// The first controller is down; a job that would fit there is served by the second.
pub(crate) fn goes_elsewhere(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let (first, second) = scene.controllers();
        scene.order(first, r#"{"down":"refuse"}"#).await?;
        let job = scene.apply("01-single-worker.yaml").await?;
        let (controller, node) = scene.facts().placed(&job, PATIENCE).await?;
        assert_eq!(
            (controller, node),
            (second.address.clone(), second.node.clone())
        );
        scene.facts().completed(&job, PATIENCE).await?;
        scene.clear_orders(first).await?;
        scene
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await
    })
}

/// The first controller is too small for the job and the second is down; the job's status names
/// both and why, and the job ends well once the second is back.
pub(crate) fn waits_and_says_why(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let (first, second) = scene.controllers();
        scene.order(second, r#"{"down":"refuse"}"#).await?;
        let job = scene.apply("03-large.yaml").await?;
        let jobs: Api<IPUJob> = Api::namespaced(scene.operated.client.clone(), &job.namespace);
        until("the status to name both controllers", PATIENCE, || async {
            let status = jobs.get(&job.name).await?.status.unwrap_or_default();
            let told: Vec<&str> = status
                .conditions
                .iter()
                .map(|condition| condition.message.as_str())
                .collect();
            let told = told.join(" | ");
            let named = [&first.address, &second.address];
            Ok::<_, kube::Error>(Seen::when(told, |told| {
                named.iter().all(|name| told.contains(*name))
            }))
        })
        .await?;
        scene.clear_orders(second).await?;
        scene.facts().completed(&job, PATIENCE).await?;
        scene.delete_and_leave_nothing("03-large.yaml").await
    })
}
