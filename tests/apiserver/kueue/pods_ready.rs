//! Kueue's own `waitForPodsReady`: a job whose Pods do not become ready goes through the eviction,
//! the back-off and the limit of Kueue, and has neither partition nor quota meanwhile.

use serde_json::json;
use tests::kueue::objects::cluster_queue;
use vipu_simulator::faults::Method;

use super::fixture::{FLAVOR, Fixture, QUEUE};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_pods_do_not_become_ready_is_requeued_by_kueue_until_its_limit() {
    let changes = json!({"waitForPodsReady": {
        "timeout": "8s",
        "requeuingStrategy": {
            "timestamp": "Eviction", "backoffBaseSeconds": 1, "backoffMaxSeconds": 1, "backoffLimitCount": 1,
        },
    }});
    let queue = cluster_queue(QUEUE, &[(FLAVOR, 4)]);
    let fixture = Fixture::with_configuration(queue, &changes).await;
    // No kubelet runs its Pod.
    fixture.submit("stuck", 4).await;
    fixture.once_taken(4).await;
    let requeued = fixture
        .once("stuck", "is evicted and queued again", |workload| {
            workload.0.data["status"]["requeueState"]["count"] == 1
        })
        .await;
    assert_eq!(
        requeued.reason("Evicted"),
        "PodsReadyTimeout",
        "{requeued:?}"
    );
    let limited = fixture
        .once("stuck", "is deactivated", |workload| {
            workload.0.data["spec"]["active"] == false
        })
        .await;
    let conditions = limited.0.data["status"]["conditions"].to_string();
    assert!(
        conditions.contains("RequeuingLimitExceeded"),
        "{conditions}"
    );
    fixture.once_released("stuck").await;
    fixture.once_taken(0).await;
    fixture.once_reserved(0).await;
    let calls = fixture.installation.simulator.server.calls(0);
    let created = calls
        .iter()
        .filter(|call| call.method == Method::CreatePartition);
    assert_eq!(created.count(), 2, "one for each admission");
    let status = fixture.status("stuck").await;
    assert!(status.contains("deactivated"), "{status}");
}
