//! The API server does not respond for a while, and returns. Afterwards, a user reads what happened to the jobs,
//! and nothing about the outage.

use cluster::fault::Stopped;
use ipu_api::ipujob_status::JobState;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::processes::Place;

/// The log lines of both processes once the Lease has expired during the outage.
const NOT_LEADING: &str = "not renewed in time; no longer leading";

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_a_user_reads_what_happened_and_nothing_of_the_outage() {
    let place = Place::new().await;
    let proxy = place.proxy("proxy", Vec::new()).await;
    let controller = place.controller("controller", Vec::new()).await;
    let runs = place.run_job("runs").await;
    place.run_job("ends").await;
    let before = place.once("runs", JobState::Running).await;
    let pod = place.pods().get("runs-worker-0").await.unwrap();

    let server = place.plane.api_server().unwrap();
    let stopped = Stopped::process(server.pid).unwrap();
    for process in [&controller, &proxy] {
        process.says(NOT_LEADING).await;
        process.must_run();
    }
    drop(stopped);

    // The kubelet reports an end that it has seen meanwhile.
    place.ends("ends-worker-0").await;
    place.once("ends", JobState::Completed).await;
    place.run_job("later").await;
    for (job, parts) in [
        ("runs", &["Launcher Status: Running"][..]),
        ("ends", &["Launcher Status: Completed", "IPUJobSucceeded"]),
        ("later", &["Launcher Status: Running", "SuccessfulCreate"]),
    ] {
        let text = place.described(job, parts).await;
        assert!(!text.contains("Warning"), "{job}: {text}");
    }
    // The same holds for a condition of the job that ran on, or of a later job.
    let after = place.once("runs", JobState::Running).await;
    assert_eq!(after.conditions, before.conditions);
    assert_eq!(after.last_message, before.last_message);
    assert_eq!(after.start_time, before.start_time);
    assert_eq!(after.restart_count, before.restart_count);
    assert_eq!(place.id("runs").await, Some(runs));
    let still = place.pods().get("runs-worker-0").await.unwrap();
    assert_eq!(still.uid(), pod.uid());
    let partitions: Api<ipu_api::ipupartition::IPUPartition> = Api::all(place.client.clone());
    let partitions = partitions.list(&ListParams::default()).await.unwrap();
    let resets = partitions.iter().map(|one| one.spec.reset_generation);
    assert_eq!(resets.max(), Some(0), "nothing is reset");
    for process in [&controller, &proxy] {
        process.must_run();
    }
}
