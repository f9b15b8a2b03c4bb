//! The operator's processes are killed at the worst moments.

use cluster::wait::{Seen, until};
use harness::demo::{CleanupError, partitions_of};
use ipu_api::ipupartition::AttemptOutcome;
use libtest_mimic::Failed;

use crate::fixture::{Fixture, PATIENCE};

/// The V-IPU controller forms the partition and its reply is lost. The proxy is killed while it waits, so only the
/// write-ahead record names the partition.
pub(crate) fn proxy(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let (first, _) = fixture.controllers();
        let before = fixture.creates_seen(first).await?;
        let lost = r#"{"method":"CreatePartition","times":1,"lose_reply":"hang"}"#;
        fixture.order(first, lost).await?;
        let job = fixture.apply("01-single-worker.yaml").await?;
        let formed = until("the partition to be formed", PATIENCE, || async {
            let ids = partitions_of(first).await?;
            Ok::<_, CleanupError>(Seen::when(ids, |ids| ids.len() == 1))
        })
        .await?;
        let attempts = fixture.attempts().await?;
        assert_eq!(
            attempts,
            [(formed[0].clone(), AttemptOutcome::Unknown)],
            "the partition is formed and not yet recorded"
        );

        fixture.kill_leading_proxy().await?;

        fixture.facts().completed(&job, PATIENCE).await?;
        let creates = fixture.creates_seen(first).await? - before;
        assert_eq!(creates, 1, "the partition was adopted, not created again");
        fixture.clear_orders(first).await?;
        fixture
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await
    })
}

/// The controller is killed after it has requested the partition of the job, and again when the Pod has a node.
pub(crate) fn controller(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let job = fixture.apply("01-single-worker.yaml").await?;
        until("the job to ask for a partition", PATIENCE, || async {
            let partitions = fixture.partitions().await?.len();
            Ok::<_, kube::Error>(Seen::when(partitions, |found| *found == 1))
        })
        .await?;
        fixture.kill_controller().await?;
        fixture.facts().placed(&job, PATIENCE).await?;
        fixture.kill_controller().await?;
        fixture.facts().completed(&job, PATIENCE).await?;
        fixture
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await?;
        fixture.webhooks_answer().await
    })
}
