//! The API server does not respond for a while, and returns. Afterwards, a user reads what happened
//! to the jobs, and nothing about the outage.

use cluster::fault::Stopped;
use ipu_api::ipujob_status::JobState;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::processes::Installation;

/// The log lines of both processes once the Lease has expired during the outage.
const NOT_LEADING: &str = "not renewed in time; no longer leading";

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_a_user_reads_what_happened_and_nothing_of_the_outage() {
    let installation = Installation::new().await;
    let proxy = installation.proxy("proxy", Vec::new()).await;
    let controller = installation.controller("controller", Vec::new()).await;
    let runs = installation.run_job("runs").await;
    installation.run_job("ends").await;
    let before = installation.once("runs", JobState::Running).await;
    let pod = installation.pods().get("runs-worker-0").await.unwrap();

    let server = installation.plane.api_server().unwrap();
    let stopped = Stopped::process(server.pid).unwrap();
    for process in [&controller, &proxy] {
        process.says(NOT_LEADING).await;
        process.must_run();
    }
    drop(stopped);

    // The kubelet reports an end that it has seen meanwhile.
    installation.ends("ends-worker-0").await;
    installation.once("ends", JobState::Completed).await;
    installation.run_job("later").await;
    for (job, parts) in [
        ("runs", &["Launcher Status: Running"][..]),
        ("ends", &["Launcher Status: Completed", "IPUJobSucceeded"]),
        ("later", &["Launcher Status: Running", "SuccessfulCreate"]),
    ] {
        let text = installation.described(job, parts).await;
        assert!(!text.contains("Warning"), "{job}: {text}");
    }
    // The same holds for a condition of the job that ran on, or of a later job.
    let after = installation.once("runs", JobState::Running).await;
    assert_eq!(after.conditions, before.conditions);
    assert_eq!(after.last_message, before.last_message);
    assert_eq!(after.start_time, before.start_time);
    assert_eq!(after.restart_count, before.restart_count);
    assert_eq!(installation.id("runs").await, Some(runs));
    let still = installation.pods().get("runs-worker-0").await.unwrap();
    assert_eq!(still.uid(), pod.uid());
    let partitions: Api<ipu_api::ipupartition::IPUPartition> =
        Api::all(installation.client.clone());
    let partitions = partitions.list(&ListParams::default()).await.unwrap();
    let resets = partitions.iter().map(|one| one.spec.reset_generation);
    assert_eq!(resets.max(), Some(0), "nothing is reset");
    for process in [&controller, &proxy] {
        process.must_run();
    }
}
