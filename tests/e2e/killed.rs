//! The operator's processes are killed without a chance to tidy up, at the worst moments.

use cluster::wait::{Seen, until};
use ipu_api::ipupartition::AttemptOutcome;
use lab::demo::{LeftoverError, partitions_of};
use libtest_mimic::Failed;

use crate::scene::{PATIENCE, Scene};

/// The V-IPU controller forms the partition and its reply never comes; the proxy is killed while it
/// waits, so that nothing but the write-ahead record knows of the partition.
pub(crate) fn proxy(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let (first, _) = scene.controllers();
        let before = scene.creates_seen(first).await?;
        let lost = r#"{"method":"CreatePartition","times":1,"lose_reply":"hang"}"#;
        scene.order(first, lost).await?;
        let job = scene.apply("01-single-worker.yaml").await?;
        let formed = until("the partition to be formed", PATIENCE, || async {
            let ids = partitions_of(first).await?;
            Ok::<_, LeftoverError>(Seen::when(ids, |ids| ids.len() == 1))
        })
        .await?;
        let attempts = scene.attempts().await?;
        assert_eq!(
            attempts,
            [(formed[0].clone(), AttemptOutcome::Unknown)],
            "the partition is formed and not yet recorded"
        );

        scene.kill_leading_proxy().await?;

        scene.facts().completed(&job, PATIENCE).await?;
        let creates = scene.creates_seen(first).await? - before;
        assert_eq!(creates, 1, "the partition was taken over, not made again");
        scene.clear_orders(first).await?;
        scene
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await
    })
}

/// The controller is killed when the job has asked for its partition, and again when its Pod has a
/// node.
pub(crate) fn controller(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let job = scene.apply("01-single-worker.yaml").await?;
        until("the job to ask for a partition", PATIENCE, || async {
            let partitions = scene.partitions().await?.len();
            Ok::<_, kube::Error>(Seen::when(partitions, |found| *found == 1))
        })
        .await?;
        scene.kill_controller().await?;
        scene.facts().placed(&job, PATIENCE).await?;
        scene.kill_controller().await?;
        scene.facts().completed(&job, PATIENCE).await?;
        scene
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await?;
        scene.webhooks_answer().await
    })
}
