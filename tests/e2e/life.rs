//! A job with a sidecar.

use libtest_mimic::Failed;

use crate::fixture::{Fixture, PATIENCE};

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
