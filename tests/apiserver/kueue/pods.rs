//! Queued native Pods with IPUs: Kueue's gate and the operator's gate on the same Pod.

use cluster::wait::eventually;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;
use tests::kueue::objects::{IPUS, QUEUE_LABEL};

use super::fixture::{Fixture, QUEUE};

/// Kueue's gate.
pub(super) const ADMISSION: &str = "kueue.x-k8s.io/admission";

/// The operator's gate.
const PARTITION: &str = "graphcore.ai/partition";

/// A queued Pod with a limit of this number of IPUs.
pub(super) fn pod(name: &str, ipus: u32) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": "program:1", "resources": {"limits": {IPUS: ipus.to_string()}},
            }],
        },
    });
    serde_json::from_value(pod).unwrap()
}

pub(super) fn gates(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.as_ref();
    let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
    gates
        .into_iter()
        .flatten()
        .map(|gate| gate.name.as_str())
        .collect()
}

/// Returns the Pod once it `is_so`.
async fn once(fixture: &Fixture, name: &str, what: &str, is_so: impl Fn(&Pod) -> bool) -> Pod {
    eventually(&format!("{name} {what}"), async || {
        let pod = fixture.installation.pods().get_opt(name).await.unwrap();
        let seen = format!("{pod:#?}");
        pod.filter(&is_so).ok_or(seen)
    })
    .await
}

pub(super) async fn once_running(fixture: &Fixture, name: &str) {
    let runs = |pod: &Pod| {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.labels().contains_key("graphcore.ai/partition-id")
    };
    once(fixture, name, "runs with a partition", runs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_passes_both_gates_and_asks_for_ipus_when_it_has_quota() {
    let mut fixture = Fixture::with_quota(4).await;
    fixture.run_pods(false);
    let create = PostParams::default();
    for name in ["one", "two"] {
        let created = fixture
            .installation
            .pods()
            .create(&create, &pod(name, 4))
            .await;
        let created = created.unwrap();
        for gate in [ADMISSION, PARTITION] {
            assert!(gates(&created).contains(&gate), "{created:#?}");
        }
        if name == "one" {
            once_running(&fixture, name).await;
        }
    }
    let two = once(&fixture, "two", "waits for quota", |pod| {
        gates(pod).contains(&ADMISSION)
    });
    assert!(gates(&two.await).contains(&PARTITION));
    assert_eq!(fixture.taken(), 4, "the second asks for none yet");

    fixture.delete_pod("one").await;
    once_running(&fixture, "two").await;
    assert_eq!(fixture.most_taken(), 4);
}
