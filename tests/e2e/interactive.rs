//! An interactive job: mpirun by hand, suspension, and the end of its time limit.

use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::Fixture;

/// A user starts mpirun in the launcher and gets its exit code. `suspend` releases the IPUs until
/// the user resumes the job.
pub(crate) fn runs_mpirun_and_is_suspended(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let job = fixture.apply("09-interactive.yaml").await?;
        let status = fixture.once(&job.name, JobState::Running).await?;
        assert!(status.session_end_time.is_some());
        let script = "mpirun -np 2 --bind-to none hostname && exit 7";
        let exec = ["exec", "interactive-launcher", "--", "bash", "-c"];
        let ended = fixture.kubectl(&[&exec[..], &[script]].concat()).await;
        let said = format!("{:?}", ended.expect_err("the script ends with 7"));
        for part in [
            "interactive-worker-0",
            "interactive-worker-1",
            "exit code 7",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }

        suspend(fixture, true).await?;
        fixture.once(&job.name, JobState::Suspended).await?;
        fixture.once_no_partition().await?;
        suspend(fixture, false).await?;
        fixture.once(&job.name, JobState::Running).await?;
        fixture
            .delete_and_leave_nothing("09-interactive.yaml")
            .await
    })
}

/// At the end of its time limit an interactive job is Completed, and its IPUs are free.
pub(crate) fn ends_by_itself(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let mut job = fixture.example("09-interactive.yaml")?;
        let interactive = job.spec.interactive.as_mut().expect("it is interactive");
        interactive.ttl = 3;
        fixture.create(&job).await?;
        fixture.once("interactive", JobState::Completed).await?;
        fixture.once_no_partition().await?;
        fixture
            .delete_and_leave_nothing("09-interactive.yaml")
            .await
    })
}

async fn suspend(fixture: &Fixture, whether: bool) -> Result<(), Failed> {
    let change = json!({"spec": {"suspend": whether}}).to_string();
    let job = "ipujob/interactive";
    let patch = ["patch", job, "--type", "merge", "-p", &change];
    fixture.kubectl(&patch).await?;
    Ok(())
}
