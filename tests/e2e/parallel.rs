//! mpirun across worker Pods: with more workers than its radix, with both versions of Open MPI, as
//! root and as a normal user, and with a lost worker.

use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;

use crate::fixture::{Fixture, PATIENCE};

const ROOT: i64 = 0;
const SOMEBODY: i64 = 1000;

/// By default, the first workers would start the others, but only the launcher has the right to.
/// Eight workers with a radix of two run nevertheless.
pub(crate) fn four_reaches_more_workers_than_its_radix(fixture: &Fixture) -> Result<(), Failed> {
    let radix = ["--mca", "routed_radix", "2"];
    runs_everywhere(fixture, OpenMpi::Four, ROOT, 8, &radix)
}

/// The same with Open MPI 5, whose daemons use another name for the setting.
pub(crate) fn five_reaches_more_workers_than_its_radix(fixture: &Fixture) -> Result<(), Failed> {
    let radix = ["--prtemca", "routed_radix", "2"];
    runs_everywhere(fixture, OpenMpi::Five, ROOT, 8, &radix)
}

/// A user without privileges, with Open MPI 4.
pub(crate) fn four_runs_as_a_normal_user(fixture: &Fixture) -> Result<(), Failed> {
    runs_everywhere(fixture, OpenMpi::Four, SOMEBODY, 2, &[])
}

/// A user without privileges, with Open MPI 5.
pub(crate) fn five_runs_as_a_normal_user(fixture: &Fixture) -> Result<(), Failed> {
    runs_everywhere(fixture, OpenMpi::Five, SOMEBODY, 2, &[])
}

/// As many workers as IPUs on the large controller: sixty-four streams from one launcher.
pub(crate) fn reaches_sixty_four_workers(fixture: &Fixture) -> Result<(), Failed> {
    runs_everywhere(fixture, OpenMpi::Four, ROOT, 64, &[])
}

/// A worker that is deleted under a running mpirun fails the job, which names it. Open MPI 4 also
/// fails.
pub(crate) fn four_loses_a_worker(fixture: &Fixture) -> Result<(), Failed> {
    loses_a_worker(fixture, OpenMpi::Four)
}

/// Open MPI 5 exits with 0 after it has lost a worker. The job fails nevertheless.
pub(crate) fn five_loses_a_worker(fixture: &Fixture) -> Result<(), Failed> {
    loses_a_worker(fixture, OpenMpi::Five)
}

/// Runs one rank on each of these workers. Each prints its rank and its host.
fn runs_everywhere(
    fixture: &Fixture,
    version: OpenMpi,
    user: i64,
    workers: u32,
    options: &[&str],
) -> Result<(), Failed> {
    fixture.block_on(async {
        let count = workers.to_string();
        let mpirun = ["mpirun", "-np", &count, "--bind-to", "none"];
        let rank = ["sh", "-c", "echo rank on $(hostname) as $(id -u)"];
        let command = [&mpirun[..], options, &rank[..]].concat();
        let mut job = fixture.parallel(version, user, &command)?;
        job.spec.workers_per_job_instance = Some(count.clone());
        job.spec.ipus_per_job_instance = workers.max(8).to_string();
        fixture.create(&job).await?;
        fixture.once("parallel", JobState::Completed).await?;
        let log = fixture.kubectl(&["logs", "parallel-launcher"]).await?;
        let is_rank = |line: &&str| line.starts_with("rank on ");
        let mut ranks: Vec<&str> = log.lines().filter(is_rank).collect();
        ranks.sort_unstable();
        let mut wanted: Vec<String> = (0..workers)
            .map(|index| format!("rank on parallel-worker-{index} as {user}"))
            .collect();
        wanted.sort_unstable();
        assert_eq!(ranks, wanted, "one rank on each: {log}");
        fixture.delete_and_leave_nothing("02-parallel.yaml").await
    })
}

fn loses_a_worker(fixture: &Fixture, version: OpenMpi) -> Result<(), Failed> {
    fixture.block_on(async {
        let rank = "touch /tmp/runs; sleep 600";
        let command = ["mpirun", "-np", "2", "--bind-to", "none", "sh", "-c", rank];
        fixture
            .create(&fixture.parallel(version, ROOT, &command)?)
            .await?;
        let both_run = "the ranks to run on both workers";
        until(both_run, PATIENCE, || async {
            let look = ["exec", "parallel-worker-1", "--", "ls", "/tmp/runs"];
            fixture.kubectl(&look).await.map(Seen::Yes)
        })
        .await?;
        let delete = ["delete", "pod", "parallel-worker-1", "--wait=false"];
        fixture.kubectl(&delete).await?;
        let status = fixture.once("parallel", JobState::Failed).await?;
        let message = status.last_message;
        assert!(message.contains("parallel-worker-1"), "{message}");
        fixture.delete_and_leave_nothing("02-parallel.yaml").await
    })
}
