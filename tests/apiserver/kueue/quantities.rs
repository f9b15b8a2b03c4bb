//! Kueue writes the quantities of a Workload in their canonical form: neither that nor a change of
//! its priority stops a job, and a job that Kueue has stopped for good does not run again.

use ipu_api::ipujob_status::JobState;
use kube::ResourceExt;
use serde_json::json;
use tests::kueue::objects::{PRIORITY_LABEL, priority_class};
use tests::kueue::workload::Workload;

use super::fixture::{Fixture, job};

/// The label with the seconds after which Kueue deactivates a job.
const TIME_LIMIT: &str = "kueue.x-k8s.io/max-exec-time-seconds";

/// Name of the WorkloadPriorityClass.
const CLASS: &str = "mine";

fn cpu(workload: &Workload) -> &serde_json::Value {
    &workload.0.data["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
        ["cpu"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewritten_workload_stops_no_job_and_starts_none_again() {
    let mut fixture = Fixture::with_quota(8).await;
    fixture.run_pods(false);
    fixture.apply(&priority_class(CLASS, 1)).await;
    let mut long = job("long", 4);
    long["metadata"]["labels"][PRIORITY_LABEL] = json!(CLASS);
    fixture.installation.submit(&long).await;
    fixture.once_running("long").await;
    let admitted = fixture.once("long", "is admitted and ready", |one| one.is("PodsReady"));
    let admitted = admitted.await;
    let pod = fixture.pod("long-worker-0").await;

    fixture.apply(&priority_class(CLASS, 2)).await;
    fixture
        .once(
            "long",
            "has the new priority, and Kueue has written its quantities",
            |one| one.0.data["spec"]["priority"] == 2 && cpu(one) == "500m",
        )
        .await;

    let mut short = job("short", 4);
    short["metadata"]["labels"][TIME_LIMIT] = json!("1");
    fixture.installation.submit(&short).await;
    let first = fixture
        .once("short", "is admitted", |one| one.is("Admitted"))
        .await;
    let stopped = fixture
        .once("short", "is stopped for good, and holds no quota", |one| {
            let is_active = &one.0.data["spec"]["active"];
            *is_active == json!(false) && one.is("Evicted") && !one.holds_quota()
        })
        .await;
    assert_eq!(
        stopped.0.uid(),
        first.0.uid(),
        "its Workload was not created again"
    );
    fixture.once_released("short").await;
    fixture
        .installation
        .once("short", JobState::Suspended)
        .await;

    // The first job has run all the time.
    let same = fixture
        .once("long", "is admitted", |one| one.is("Admitted"))
        .await;
    assert_eq!(same.0.uid(), admitted.0.uid());
    assert_eq!(fixture.pod("long-worker-0").await.uid(), pod.uid());
    fixture.end("long").await;
    fixture.once_reserved(0).await;
    assert!(fixture.most_taken() <= 8);
}
