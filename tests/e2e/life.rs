//! Jobs that do not simply run through: one fails and starts again, one has a helper beside it, one
//! loses a worker.

use ipu_operator::api::ipujob_status::JobState;
use libtest_mimic::Failed;
use tests::wait::{Seen, until};

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

/// A worker that is deleted under a running launcher fails the job by name, whatever mpirun says.
pub(crate) fn loses_a_worker(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let mut job = scene.example("02-parallel.yaml")?;
        let launcher = job.spec.launcher.as_mut().expect("it is a parallel job");
        let rank = "touch /tmp/runs; sleep 600";
        let command = ["mpirun", "-np", "2", "--bind-to", "none", "sh", "-c", rank];
        launcher.command = command.map(ToOwned::to_owned).to_vec();
        scene.create(&job).await?;
        let both_run = "the ranks to run on both workers";
        until(both_run, PATIENCE, || async {
            let look = ["exec", "parallel-worker-1", "--", "ls", "/tmp/runs"];
            let found = scene.kubectl(&look).await;
            Ok::<_, Failed>(Seen::from(found.map_err(|error| format!("{error:?}"))))
        })
        .await?;
        scene
            .kubectl(&["delete", "pod", "parallel-worker-1", "--wait=false"])
            .await?;
        let status = scene.once("parallel", JobState::Failed).await?;
        assert!(
            status.last_message.contains("parallel-worker-1"),
            "{}",
            status.last_message
        );
        scene.delete_and_leave_nothing("02-parallel.yaml").await
    })
}
