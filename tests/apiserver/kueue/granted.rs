//! A user cannot grant what Kueue grants to a job: neither by `spec.suspend`, nor by annotations,
//! nor by the status.

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::JobState;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use vipu_simulator::Simulator;
use vipu_simulator::faults::Method;

use super::fixture::{Fixture, job, queue_with};
use crate::chart::admin::Admin;
use crate::processes::RELEASE;

/// A user whom the role for users of the chart is bound to.
const USER: [&str; 3] = ["--as=alice", "--as-group=team", "--namespace=default"];

/// Returns how often a V-IPU controller was requested to create a partition.
fn requests(simulator: &Simulator) -> usize {
    let calls = simulator.server.calls(0).into_iter();
    calls
        .filter(|call| call.method == Method::CreatePartition)
        .count()
}

/// The user resumes the job. Waits until the operator has suspended it again.
async fn resume(fixture: &Fixture) {
    let (jobs, params) = (fixture.installation.jobs(), PatchParams::default());
    let resume = Patch::Merge(json!({"spec": {"suspend": false}}));
    jobs.patch("own", &params, &resume).await.unwrap();
    eventually("the job is suspended again", async || {
        let found = jobs.get("own").await.unwrap();
        let status = found.status.clone().unwrap_or_default();
        let is_settled = status.observed_generation == found.metadata.generation
            && status.launcher_status == JobState::Suspended;
        Seen::when((found.spec.suspend, is_settled), |found| {
            *found == (Some(true), true)
        })
    })
    .await;
}

/// Checks that the role for users allows to change the job, and not its status.
async fn check_rights(fixture: &Fixture) {
    let admin = Admin::of(RELEASE, fixture.installation.plane.kubeconfig());
    let bind = [
        "create",
        "rolebinding",
        "users",
        "--clusterrole=ipu-operator-edit",
        "--group=team",
        "--namespace=default",
    ];
    admin.kubectl(&bind).unwrap();
    let patch = ["patch", "ipujob", "own", "--type=merge"];
    let label = ["--patch", r#"{"metadata":{"labels":{"a":"b"}}}"#];
    eventually("the user may change the job", async || {
        let changed = admin.kubectl(&[&patch[..], &label, &USER].concat());
        Seen::from(changed.map_err(|error| error.to_string()))
    })
    .await;
    let grant = r#"{"status":{"admission":{"reservePartitions":true}}}"#;
    let grant = ["--subresource=status", "--patch", grant];
    let refused = admin.kubectl(&[&patch[..], &grant, &USER].concat());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("ipujobs/status"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_can_neither_start_a_queued_job_nor_grant_it_anything() {
    let mut fixture = Fixture::with_queue(queue_with("Hold")).await;
    fixture.run_pods(false);
    let mut own = job("own", 4);
    own["metadata"]["annotations"] = json!({
        "graphcore.ai/reserve-partitions": "true",
        "graphcore.ai/admitted-pod-sets": r#"{"worker":{"labels":{"mine":"yes"}}}"#,
    });
    fixture.installation.submit(&own).await;
    fixture.installation.once("own", JobState::Suspended).await;

    for _ in 0..5 {
        resume(&fixture).await;
    }
    let asked = [&fixture.installation.simulator, &fixture.other].map(requests);
    assert_eq!(asked, [0, 0], "nothing was created in between");

    check_rights(&fixture).await;

    fixture.apply(&queue_with("None")).await;
    fixture.once_running("own").await;
    let pod = fixture.pod("own-worker-0").await;
    assert!(!pod.labels().contains_key("mine"), "{:?}", pod.labels());
    let jobs = fixture.installation.jobs();
    let admission = jobs.get("own").await.unwrap().status.unwrap().admission;
    assert!(admission.is_some_and(|admission| !admission.reserve_partitions));
    fixture.end("own").await;
}
