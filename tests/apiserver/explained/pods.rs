//! A job with its partition waits for its Pods. There is no kubelet and no scheduler, so the tests
//! write their statuses.

use cluster::wait::{Seen, eventually};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::fixture::{Explained, job};

/// The only Pod of the job.
const WORKER: &str = "train-worker-0";

/// The reason of a Pod, and the expected explanations.
struct Cause {
    /// The text of the kubelet or the scheduler.
    status: Value,
    /// The reason, in all places.
    text: &'static str,
    /// The expected advice.
    advice: &'static str,
}

fn waiting(container: &str, reason: &str, message: &str) -> Value {
    json!([{
        "name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}},
    }])
}

fn causes() -> [Cause; 3] {
    let unschedulable = json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.",
    }]);
    let pulled = waiting(
        "main",
        "ImagePullBackOff",
        "Back-off pulling image \"program:1\"",
    );
    let crashed = waiting(
        "prepare",
        "CrashLoopBackOff",
        "back-off 10s restarting failed container=prepare",
    );
    [
        Cause {
            status: json!({"conditions": unschedulable}),
            text: "Unschedulable: 0/3 nodes are available: 3 Insufficient memory.",
            advice: "Unschedulable: no node fits",
        },
        Cause {
            status: json!({"conditions": null, "containerStatuses": pulled}),
            text: "ImagePullBackOff: Back-off pulling image \"program:1\"",
            advice: "ImagePullBackOff: correct the image of the container",
        },
        Cause {
            status: json!({
                "conditions": null,
                "containerStatuses": null,
                "initContainerStatuses": crashed,
            }),
            text: "CrashLoopBackOff: back-off 10s restarting failed container=prepare",
            advice: "CrashLoopBackOff: kubectl logs --previous of that Pod shows why",
        },
    ]
}

fn pods(explained: &Explained) -> Api<Pod> {
    Api::namespaced(explained.fixture.client.clone(), "default")
}

/// Waits until the condition, the plugin and the dashboard show the reason of the job's Pod. A
/// query does not show it, because free capacity is not the cause.
async fn is_named(explained: &Explained, text: &str, advice: &str) {
    let condition = ["PodsReady", "PodsWaiting", text];
    explained.once_condition("train", condition).await;
    let reader = &explained.reader;
    reader.why("train", &[text, advice]).await;
    reader.queue_blocks("train", text).await;
    let is_placed = |answer: &Value| answer["decision"] == "try";
    let query = json!({"size": 4});
    reader.query("it would fit", &query, is_placed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_an_image_and_an_init_container() {
    let mut explained = Explained::prepare(&[8]).await;
    explained.start().await;
    explained.submit(&job("train", 4)).await;
    explained.once_served("train").await;
    let pods = pods(&explained);
    eventually("the Pod is made", async || {
        pods.get_opt(WORKER).await.unwrap()
    })
    .await;
    for cause in causes() {
        let patch = Patch::Merge(json!({"status": cause.status}));
        let params = PatchParams::default();
        pods.patch_status(WORKER, &params, &patch).await.unwrap();
        is_named(&explained, cause.text, cause.advice).await;
    }
    // A running Pod is not a problem, so the conditions and the dashboard's queue do not name it.
    let running = json!([{
        "name": "prepare", "image": "", "imageID": "", "ready": false, "restartCount": 1,
        "state": {"running": {}},
    }]);
    let patch = Patch::Merge(json!({"status": {"initContainerStatuses": running}}));
    let params = PatchParams::default();
    pods.patch_status(WORKER, &params, &patch).await.unwrap();
    let page = [
        "Initializing: the init container prepare runs",
        "Initializing: wait for the init container",
    ];
    explained.reader.why("train", &page).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_for_pods() {
    let mut explained = Explained::prepare(&[8]).await;
    explained.start().await;
    let none = json!({"pods": "0"});
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "no-pods"}, "spec": {"hard": none},
    }))
    .unwrap();
    let client = explained.fixture.client.clone();
    let quotas: Api<ResourceQuota> = Api::namespaced(client, "default");
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    // The quota's own controller does not run here.
    let status = json!({"status": {"hard": none, "used": {"pods": "0"}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&status));
    let patched = quotas.patch_status("no-pods", &params, &patch).await;
    patched.unwrap();
    // The API server follows quotas with a short delay.
    let probe: Pod = serde_json::from_value(json!({
        "metadata": {"name": "probe"}, "spec": {"containers": [{"name": "main", "image": "none"}]},
    }))
    .unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pods = pods(&explained);
    eventually("a Pod is refused", async || {
        let refusal = pods.create(&dry_run, &probe).await.err();
        Seen::when(refusal.map(|error| error.to_string()), |error| {
            error
                .as_ref()
                .is_some_and(|error| error.contains("exceeded quota"))
        })
    })
    .await;
    explained.submit(&job("train", 4)).await;
    let advice = "PodsWaiting: the message quotes the API server or the kubelet: a quota,";
    is_named(&explained, "exceeded quota: no-pods", advice).await;
}
