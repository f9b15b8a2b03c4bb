//! Jobs with restarts and sidecars.

use libtest_mimic::Failed;

use crate::fixture::{Fixture, PATIENCE};

/// A run that fails with a retryable exit code is followed by another one, on the same partition.
pub(crate) fn fails_and_starts_again(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let (first, _) = fixture.controllers();
        let before = fixture.creates_seen(first).await?;
        let job = fixture.apply("10-restart.yaml").await?;
        fixture.facts().completed(&job, PATIENCE).await?;
        let status = fixture.job(&job.name).await?.status.unwrap_or_default();
        let run = status.run.unwrap_or_default();
        assert_eq!((run.number, run.failures), (1, 1));
        assert_eq!(status.restart_count, Some(1));
        let log = fixture.kubectl(&["logs", "restart-worker-0"]).await?;
        assert_eq!(log.trim(), "run 1");
        let creates = fixture.creates_seen(first).await? - before;
        assert_eq!(creates, 1, "the partition is kept between runs");
        fixture.delete_and_leave_nothing("10-restart.yaml").await
    })
}

/// The end of the main container ends the job, and its sidecar.
pub(crate) fn completes_beside_a_sidecar(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let job = fixture.apply("12-sidecar.yaml").await?;
        fixture.facts().completed(&job, PATIENCE).await?;
        fixture.once_no_partition().await?;
        let log = fixture.kubectl(&["logs", "sidecar-worker-0"]).await?;
        assert_eq!(log.trim(), "working", "the Pod stays for its logs");
        fixture.delete_and_leave_nothing("12-sidecar.yaml").await
    })
}
