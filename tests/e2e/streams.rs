//! The streams through which `mpirun` reaches its workers: full, idle for minutes, and interrupted
//! without a close.

use cluster::fault::cut_from_the_api_server;
use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use harness::operator_process::{OperatorProcess, ProcessError};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use libtest_mimic::Failed;
use tests::described::COMPLETED;

use crate::described::once_described;
use crate::fixture::{Fixture, PATIENCE};

/// Output of each of two ranks, in bytes.
const FLOOD: u64 = 64 << 20;

/// Time without output of a rank: longer than the timeout of a connection without pings.
const IDLE_SECONDS: &str = "150";

/// Makes the daemons of `mpirun` keep the streams that have started them. By default they close
/// these.
const ATTACHED: &str = "--leave-session-attached";

/// A rank that runs until the file `/tmp/go` exists.
const WAITS: &str = "touch /tmp/runs; until [ -e /tmp/go ]; do sleep 0.1; done";

/// Both workers print as fast as they can. No byte is lost on the way to the launcher, and the
/// description of the job is that of any completed job.
pub(crate) fn no_byte_of_a_flood_is_lost(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let rank = format!("head -c {FLOOD} /dev/zero");
        let counted = format!("mpirun -np 2 --bind-to none sh -c '{rank}' | wc -c");
        let job = fixture.parallel(OpenMpi::Four, 0, &["bash", "-c", &counted])?;
        fixture.create(&job).await?;
        fixture.once("parallel", JobState::Completed).await?;
        let log = fixture.kubectl(&["logs", "parallel-launcher"]).await?;
        let last = log.lines().last().unwrap_or_default();
        assert_eq!(last.trim().parse(), Ok(2 * FLOOD), "{log}");
        once_described(fixture, "parallel", &COMPLETED).await?;
        fixture.clear().await
    })
}

/// The job waits for a rank that prints nothing for minutes, and receives its last line. Its
/// description is that of any completed job.
pub(crate) fn an_idle_stream_stays_open(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let rank = format!("sleep {IDLE_SECONDS}; echo done");
        fixture.create(&ranks(fixture, &[ATTACHED], &rank)?).await?;
        fixture.once("parallel", JobState::Completed).await?;
        let log = fixture.kubectl(&["logs", "parallel-launcher"]).await?;
        let done = log.lines().filter(|line| line.trim() == "done");
        assert_eq!(done.count(), 2, "{log}");
        once_described(fixture, "parallel", &COMPLETED).await?;
        fixture.clear().await
    })
}

/// The streams are interrupted during `mpirun`: no connection is closed, and no data arrives. The
/// job fails within minutes instead of never, its partition is released, and the launcher's log
/// names the lost streams.
pub(crate) fn a_cut_is_noticed(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        cut_once_they_run(fixture, "cut", &[ATTACHED]).await?;
        let status = fixture.once("cut", JobState::Failed).await?;
        let said = status.last_message;
        assert!(said.contains("launcher failed: Pod cut-launcher"), "{said}");
        let log = fixture.kubectl(&["logs", "cut-launcher"]).await?;
        assert!(log.contains("lost the command in Pod cut-worker-"), "{log}");
        fixture.described("cut", &[&said, "IPUJobFailed"]).await?;
        fixture.once_no_partition().await?;
        fixture.clear().await
    })
}

/// By default the daemons of `mpirun` need no stream once they run. So a launcher without access to
/// the API server completes.
pub(crate) fn detached_ranks_need_no_stream(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        cut_once_they_run(fixture, "detached", &[]).await?;
        for worker in ["detached-worker-0", "detached-worker-1"] {
            let go = ["exec", worker, "--", "touch", "/tmp/go"];
            fixture.kubectl(&go).await?;
        }
        fixture.once("detached", JobState::Completed).await?;
        fixture.clear().await
    })
}

/// A job of two ranks that run this program.
fn ranks(fixture: &Fixture, options: &[&str], rank: &str) -> Result<IPUJob, Failed> {
    let mpirun = ["mpirun", "-np", "2", "--bind-to", "none"];
    fixture.parallel(
        OpenMpi::Four,
        0,
        &[&mpirun, options, &["sh", "-c", rank]].concat(),
    )
}

/// Creates a job whose ranks wait, and interrupts the connection of its launcher to the API server
/// once both run. No other launcher in the cluster has the job's name, by which its process is
/// found.
async fn cut_once_they_run(fixture: &Fixture, name: &str, options: &[&str]) -> Result<(), Failed> {
    let mut job = ranks(fixture, options, WAITS)?;
    job.metadata.name = Some(name.to_owned());
    fixture.create(&job).await?;
    for index in 0..2 {
        let worker = naming::worker(name, index);
        until("the ranks to run", PATIENCE, || async {
            let look = ["exec", &worker, "--", "ls", "/tmp/runs"];
            fixture.kubectl(&look).await.map(Seen::Yes)
        })
        .await?;
    }
    let launcher = naming::launcher(name);
    let launcher = until("mpirun to be found", PATIENCE, || async {
        let found = OperatorProcess::of_pod("mpirun", &launcher);
        Ok::<_, ProcessError>(Seen::Yes(found?))
    });
    Ok(cut_from_the_api_server(
        launcher.await?.pid,
        &fixture.tools,
    )?)
}
