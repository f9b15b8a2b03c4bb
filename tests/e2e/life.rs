//! Jobs that do not simply run through: one fails and starts again, one has a helper beside it.

use libtest_mimic::Failed;

use crate::scene::{PATIENCE, Scene};

/// A run that fails with a retryable code is followed by another, on the same partition.
pub(crate) fn fails_and_starts_again(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let (first, _) = scene.controllers();
        let before = scene.creates_seen(first).await?;
        let job = scene.apply("10-restart.yaml").await?;
        scene.facts().completed(&job, PATIENCE).await?;
        let status = scene.job(&job.name).await?.status.unwrap_or_default();
        let run = status.run.unwrap_or_default();
        assert_eq!((run.number, run.failures), (1, 1));
        assert_eq!(status.restart_count, Some(1));
        let log = scene.kubectl(&["logs", "restart-worker-0"]).await?;
        assert_eq!(log.trim(), "run 1");
        let creates = scene.creates_seen(first).await? - before;
        assert_eq!(creates, 1, "the partition is kept between runs");
        scene.delete_and_leave_nothing("10-restart.yaml").await
    })
}

/// The main container's end is the job's, and the helper that runs on beside it is ended.
pub(crate) fn completes_beside_a_helper(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let job = scene.apply("12-sidecar.yaml").await?;
        scene.facts().completed(&job, PATIENCE).await?;
        scene.once_no_partition().await?;
        let log = scene.kubectl(&["logs", "sidecar-worker-0"]).await?;
        assert_eq!(log.trim(), "working", "the Pod stays for its logs");
        scene.delete_and_leave_nothing("12-sidecar.yaml").await
    })
}
