//! A node that never returns: its Pods terminate for ever, and their job continues.

use cluster::wait::{Seen, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::job::single;
use crate::job_fixture::JobFixture;
use crate::nodes::set_ready;

const NODE: &str = "lost";

#[tokio::test]
async fn the_pods_of_a_lost_node_are_force_deleted_and_the_job_continues() {
    let mut fixture = JobFixture::new("lost-node").await;
    set_ready(&fixture.client, NODE, "True").await;
    fixture.start();
    let mut job = single("job");
    job["spec"]["workers"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    fixture.submit(&job).await;
    fixture.partition_ready(0).await;
    fixture.pod_is_bound("job-worker-0", NODE).await;
    fixture.pod_runs("job-worker-0").await;
    let first = fixture.pod_exists("job-worker-0").await.uid();

    // As Kubernetes does after its own timeout. No kubelet ends the Pod.
    let deletion = DeleteParams::default();
    let deleted = fixture.pods().delete("job-worker-0", &deletion).await;
    deleted.unwrap();
    set_ready(&fixture.client, NODE, "Unknown").await;

    let note = fixture.event("NodeLost").await;
    for part in ["job-worker-0", "by force", NODE, "2026-01-01T00:00:00Z"] {
        assert!(note.contains(part), "{part}: {note}");
    }
    eventually("the partition is to be reset", async || {
        let partitions = fixture.partitions().await;
        let resets = partitions.first().map(|found| found.spec.reset_generation);
        Seen::when(resets, |resets| *resets == Some(1))
    })
    .await;
    fixture.partition_reset(0).await;
    let again = fixture.pod_exists("job-worker-0").await;
    assert_ne!(again.uid(), first);
    fixture.delete("job").await;
    fixture.once_gone("job").await;
    let nodes: Api<Node> = Api::all(fixture.client.clone());
    nodes.delete(NODE, &deletion).await.unwrap();
    fixture.kill().await;
}
