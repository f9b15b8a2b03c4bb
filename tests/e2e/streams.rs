//! The streams by which `mpirun` reaches its workers: full, silent for long, and cut without being closed.

use ipu_operator::api::ipujob_status::JobState;
use libtest_mimic::Failed;
use tests::lab::fault::cut_from_the_api_server;
use tests::lab::images::openmpi::OpenMpi;
use tests::operator_process::{OperatorProcess, ProcessError};
use tests::wait::{Seen, until};

use crate::scene::{PATIENCE, Scene};

/// What each of two ranks prints, in bytes.
const FLOOD: u64 = 64 << 20;

/// How long a rank says nothing: longer than a connection that answers no ping counts as alive.
const SILENCE: &str = "150";

/// Both workers print as fast as they can; not a byte is lost on the way to the launcher.
pub(crate) fn nothing_of_a_flood_is_lost(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let rank = format!("head -c {FLOOD} /dev/zero");
        let counted = format!("mpirun -np 2 --bind-to none sh -c '{rank}' | wc -c");
        let job = scene.parallel(OpenMpi::Four, 0, &["bash", "-c", &counted])?;
        scene.create(&job).await?;
        scene.once("parallel", JobState::Completed).await?;
        let log = scene.kubectl(&["logs", "parallel-launcher"]).await?;
        let last = log.lines().last().unwrap_or_default();
        assert_eq!(last.trim().parse(), Ok(2 * FLOOD), "{log}");
        scene.clear("default").await
    })
}

/// A rank that says nothing for minutes is waited for, and its last word arrives.
pub(crate) fn silence_is_waited_for(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let rank = format!("sleep {SILENCE}; echo done");
        let command = ["mpirun", "-np", "2", "--bind-to", "none", "sh", "-c", &rank];
        scene
            .create(&scene.parallel(OpenMpi::Four, 0, &command)?)
            .await?;
        scene.once("parallel", JobState::Completed).await?;
        let log = scene.kubectl(&["logs", "parallel-launcher"]).await?;
        let done = log.lines().filter(|line| line.trim() == "done");
        assert_eq!(done.count(), 2, "{log}");
        scene.clear("default").await
    })
}

/// The streams are cut in the middle of `mpirun`: nothing is closed, and nothing arrives any more. The job fails within
/// minutes instead of never, its partition is given back, and the launcher's log says what was lost.
pub(crate) fn a_cut_is_noticed(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let rank = "touch /tmp/runs; while :; do sleep 0.1; done";
        let command = ["mpirun", "-np", "2", "--bind-to", "none", "sh", "-c", rank];
        scene
            .create(&scene.parallel(OpenMpi::Four, 0, &command)?)
            .await?;
        until("the ranks to run", PATIENCE, || async {
            let look = ["exec", "parallel-worker-1", "--", "ls", "/tmp/runs"];
            let found = scene.kubectl(&look).await;
            Ok::<_, Failed>(Seen::from(found.map_err(|error| format!("{error:?}"))))
        })
        .await?;
        let launcher = until("mpirun to be found", PATIENCE, || async {
            let found = OperatorProcess::of_pod("mpirun", "parallel-launcher");
            Ok::<_, ProcessError>(Seen::Yes(found?))
        });
        cut_from_the_api_server(launcher.await?, &scene.tools)?;
        let status = scene.once("parallel", JobState::Failed).await?;
        let said = status.last_message;
        assert!(
            said.contains("launcher failed: Pod parallel-launcher"),
            "{said}"
        );
        let log = scene.kubectl(&["logs", "parallel-launcher"]).await?;
        assert!(
            log.contains("lost the command in Pod parallel-worker-"),
            "{log}"
        );
        scene.once_no_partition().await?;
        scene.clear("default").await
    })
}
