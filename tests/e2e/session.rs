//! An interactive session: mpirun by hand, a rest, and the end of its time.

use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use serde_json::json;

use crate::scene::Scene;

/// A user starts mpirun in the launcher, and the exit code comes back; `suspend` gives the IPUs back
/// until it is taken back.
pub(crate) fn runs_mpirun_and_rests(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let job = scene.apply("09-interactive.yaml").await?;
        let status = scene.once(&job.name, JobState::Running).await?;
        assert!(status.session_end_time.is_some());
        let script = "mpirun -np 2 --bind-to none hostname && exit 7";
        let exec = ["exec", "interactive-launcher", "--", "bash", "-c"];
        let ended = scene.kubectl(&[&exec[..], &[script]].concat()).await;
        let said = format!("{:?}", ended.expect_err("the script ends with 7"));
        for part in [
            "interactive-worker-0",
            "interactive-worker-1",
            "exit code 7",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }

        suspend(scene, true).await?;
        scene.once(&job.name, JobState::Suspended).await?;
        scene.once_no_partition().await?;
        suspend(scene, false).await?;
        scene.once(&job.name, JobState::Running).await?;
        scene.delete_and_leave_nothing("09-interactive.yaml").await
    })
}

/// When its time is over the session is Completed, and its IPUs are free.
pub(crate) fn ends_by_itself(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let mut job = scene.example("09-interactive.yaml")?;
        let session = job.spec.interactive.as_mut().expect("it is interactive");
        session.ttl = 3;
        scene.create(&job).await?;
        scene.once("interactive", JobState::Completed).await?;
        scene.once_no_partition().await?;
        scene.delete_and_leave_nothing("09-interactive.yaml").await
    })
}

async fn suspend(scene: &Scene, whether: bool) -> Result<(), Failed> {
    let change = json!({"spec": {"suspend": whether}}).to_string();
    let job = "ipujob/interactive";
    let patch = ["patch", job, "--type", "merge", "-p", &change];
    scene.kubectl(&patch).await?;
    Ok(())
}
