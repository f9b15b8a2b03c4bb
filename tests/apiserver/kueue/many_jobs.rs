//! Many jobs with a small quota: each runs once, and the V-IPU controllers never hold more than the
//! quota.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::wait::{Seen, eventually, until};
use futures::StreamExt;
use ipu_api::ipujob_status::JobState;
use kube::api::ListParams;
use vipu_simulator::Simulator;
use vipu_simulator::faults::Method;

use super::fixture::{Fixture, all_workloads};
use crate::extent::full_or;

/// Number of jobs: in full, and otherwise.
const JOBS: [usize; 2] = [200, 24];

/// Quota of all jobs together, in IPUs.
const QUOTA: u32 = 16;

/// IPUs of the jobs, in turn.
const SIZES: [u32; 3] = [2, 4, 8];

/// Time limit for all of them on a busy machine.
const PATIENCE: Duration = Duration::from_mins(15);

/// Returns the ids of all partitions that a V-IPU controller was requested to create.
fn asked_for(simulator: &Simulator) -> Vec<String> {
    let calls = simulator.server.calls(0).into_iter();
    let creates = calls.filter(|call| call.method == Method::CreatePartition);
    creates.map(|call| call.partition).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_pass_a_quota_of_sixteen_ipus_and_none_is_lost() {
    let [full, otherwise] = JOBS;
    let count = full_or(full, otherwise);
    let mut fixture = Fixture::with_quota(QUOTA).await;
    fixture.run_pods(true);
    let all = futures::stream::iter(0..count).zip(futures::stream::iter(SIZES.into_iter().cycle()));
    all.for_each_concurrent(16, async |(number, ipus)| {
        fixture.submit(&format!("job-{number}"), ipus).await;
    })
    .await;
    until("every job to complete", PATIENCE, async || {
        let jobs = fixture
            .installation
            .jobs()
            .list(&ListParams::default())
            .await?;
        let states = jobs.into_iter().map(|job| job.status.unwrap_or_default());
        let completed = states.filter(|status| status.launcher_status == JobState::Completed);
        Ok::<_, kube::Error>(Seen::when(completed.count(), |done| *done == count))
    })
    .await
    .unwrap();
    eventually("every Workload is finished", async || {
        let workloads = all_workloads(&fixture.installation.client).await;
        let finished = workloads.iter().filter(|one| one.is("Finished"));
        Seen::when((workloads.len(), finished.count()), |counts| {
            *counts == (count, count)
        })
    })
    .await;
    let most = fixture.most_taken();
    assert!(most <= QUOTA, "{most} IPUs were in partitions at once");
    assert!(most > QUOTA / 2, "no more than {most} of {QUOTA} were used");
    let simulators = [&fixture.installation.simulator, &fixture.other];
    let asked = simulators.map(asked_for).concat();
    let once: BTreeSet<&String> = asked.iter().collect();
    assert_eq!((asked.len(), once.len()), (count, count));
    eventually("nothing holds IPUs or quota", async || {
        let left = (fixture.taken(), fixture.reserved().await);
        Seen::when(left, |left| *left == (0, 0))
    })
    .await;
}
