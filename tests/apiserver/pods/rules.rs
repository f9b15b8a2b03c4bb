//! A user's labels decide nothing, and rules hold for the Pod that is stored and for its changes.

use cluster::wait::{Seen, eventually};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::IPUPolicy;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tests::guests::hostile;

use super::fixture::{Native, delete, once_reported, pod, request};

/// A Pod of a user with these labels, who writes the gate of the operator as well.
fn forged(name: &str, ipus: &str, labels: &Value) -> Pod {
    let mut manifest = json!(pod(name, &json!({"graphcore.ai/ipu": ipus})));
    manifest["metadata"]["labels"] = labels.clone();
    manifest["spec"]["schedulingGates"] = json!([{"name": "graphcore.ai/partition"}]);
    serde_json::from_value(manifest).unwrap()
}

async fn refusal(pods: &Api<Pod>, pod: &Pod) -> String {
    let created = pods.create(&PostParams::default(), pod).await;
    created.unwrap_err().to_string()
}

/// Waits until the API server refuses the Pod in this way. It follows each new policy with a short
/// delay of its own.
async fn once_refused(
    native: &Native,
    pod: &Pod,
    what: &str,
    is_refusal: impl Fn(&kube::Error) -> bool,
) {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually(what, async || {
        let created = native.pods().create(&dry_run, pod).await;
        Seen::when(created.err(), |error| {
            error.as_ref().is_some_and(&is_refusal)
        })
    })
    .await;
}

/// Waits until the policy of this label refuses the Pod.
async fn once_label_refused(native: &Native, pod: &Pod, label: &str) {
    let words = format!("only the operator creates Pods with {label}");
    let is_refusal = |error: &kube::Error| error.to_string().contains(&words);
    once_refused(native, pod, &words, is_refusal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_of_the_user_decides_nothing() {
    let mut native = Native::without_reconciler(&[64, 64]).await;
    let of_job = json!({"graphcore.ai/job-uid": "x", "graphcore.ai/native-pod": "true"});
    once_label_refused(&native, &forged("x", "4", &of_job), "graphcore.ai/job-uid").await;
    // Without that label, the guests see the size.
    let native_pod = json!({"graphcore.ai/native-pod": "true"});
    let refused = refusal(&native.pods(), &forged("x", "128", &native_pod)).await;
    assert!(refused.contains("128"), "{refused}");
    let user = forged(
        "plain",
        "4",
        &json!({"graphcore.ai/partition-id": "p-of-another"}),
    );
    let mut user = json!(user);
    user["metadata"]["annotations"] = json!({});
    user["spec"]["schedulingGates"] = json!([]);
    let user = serde_json::from_value(user).unwrap();
    once_label_refused(&native, &user, "graphcore.ai/partition-id").await;

    reviewed_by_the_reconciler(&mut native).await;
}

/// Creates a Pod by the operator's own account, which no webhook reviews.
async fn reviewed_by_the_reconciler(native: &mut Native) {
    // Nor can the labels of a Pod change that the operator has created.
    let pods: Api<Pod> = Api::default_namespaced(native.operator.clone());
    let made = forged("made", "128", &json!({"graphcore.ai/job-uid": "x"}));
    pods.create(&PostParams::default(), &made).await.unwrap();
    for labels in [
        json!({"graphcore.ai/job-uid": null}),
        json!({"graphcore.ai/job-uid": "y"}),
        json!({"graphcore.ai/role": "launcher"}),
    ] {
        let change = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let changed = native
            .pods()
            .patch("made", &PatchParams::default(), &change)
            .await;
        let refused = changed.unwrap_err().to_string();
        assert!(refused.contains("cannot change"), "{labels}: {refused}");
    }

    // The reconciler checks the size of the Pod again.
    native.start_reconciler(ipu_pods::NativePodSettings {
        max_ipus: Some(64),
        ..ipu_pods::NativePodSettings::default()
    });
    let free = json!({"metadata": {"labels": {"graphcore.ai/job-uid": null, "graphcore.ai/native-pod": "true"}}});
    pods.patch("made", &PatchParams::default(), &Patch::Merge(free))
        .await
        .unwrap();
    let message = once_reported(&native.pods(), "made", "InvalidRequest").await;
    assert!(
        message.contains("128") && message.contains("64"),
        "{message}"
    );
    let partitions = native.fixture.partitions().list(&Default::default()).await;
    assert_eq!(partitions.unwrap().items.len(), 0);
    delete(&native.pods(), "made").await;
}

/// Activates a policy that refuses Pods with an image of this prefix.
async fn refuse_images(native: &Native, prefix: &str) {
    let module = hostile::refusal();
    let digest = digest_of(&module).to_string();
    let client = native.fixture.client.clone();
    let map = ConfigMap {
        metadata: serde_json::from_value(json!({"name": "modules"})).unwrap(),
        binary_data: Some([("refusal.wasm".to_owned(), ByteString(module))].into()),
        ..ConfigMap::default()
    };
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &map).await.unwrap();
    let of_prefix = format!(
        "object.spec.workers.template.spec.containers.exists(c, c.image.startsWith('{prefix}'))"
    );
    let policy: IPUPolicy = serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
        "metadata": {"name": "images"},
        "spec": {
            "hook": "Validation",
            "module": {"configMap": {"name": "modules", "key": "refusal.wasm"}, "digest": digest},
            "match": {"matchConditions": [{"name": "image", "expression": of_prefix}]},
        },
    }))
    .unwrap();
    let policies: Api<IPUPolicy> = Api::all(client);
    policies
        .create(&PostParams::default(), &policy)
        .await
        .unwrap();
}

/// Waits until no Pod can be created with this image.
async fn once_image_refused(native: &Native, image: &str) {
    let mut refused = json!(pod("refused", &json!({"graphcore.ai/ipu": "4"})));
    refused["spec"]["containers"][0]["image"] = json!(image);
    let refused: Pod = serde_json::from_value(refused).unwrap();
    let is_refusal =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 422);
    once_refused(native, &refused, "the image is refused", is_refusal).await;
}

/// The user changes the image of a Pod.
async fn set_image(native: &Native, name: &str, image: &str) -> kube::Result<Pod> {
    let change = json!({"spec": {"containers": [{"name": "main", "image": image}]}});
    let params = PatchParams::default();
    native
        .pods()
        .patch(name, &params, &Patch::Strategic(change))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_image_is_reviewed_and_nothing_else_of_a_pod_with_ipus_depends_on_the_operator() {
    let mut native = Native::start(&[4]).await;
    refuse_images(&native, "evil").await;
    once_image_refused(&native, "evil:1").await;
    request(&native.pods(), "first", "4").await.unwrap();
    native.once_bound("first").await;
    request(&native.pods(), "gated", "4").await.unwrap();
    for name in ["first", "gated"] {
        let refused = set_image(&native, name, "evil:1").await.unwrap_err();
        assert!(
            matches!(&refused, kube::Error::Api(status) if status.code == 422),
            "{refused}"
        );
        set_image(&native, name, "good:2").await.unwrap();
    }
    native.webhooks.stop();
    let params = PatchParams::default();
    // As a network plugin, an autoscaler and a GitOps tool do.
    let labels = json!({"metadata": {
        "annotations": {"k8s.v1.cni.cncf.io/network-status": "[]"},
        "labels": {"argocd.argoproj.io/instance": "x"},
    }});
    for name in ["first", "gated"] {
        let labelled = native
            .pods()
            .patch(name, &params, &Patch::Merge(&labels))
            .await;
        labelled.unwrap();
        let failed = set_image(&native, name, "good:3").await.unwrap_err();
        assert!(failed.to_string().contains("vpod.graphcore.ai"), "{failed}");
    }
    let narrowed = json!({"spec": {"nodeSelector": {"zone": "b"}}});
    let failed = native
        .pods()
        .patch("gated", &params, &Patch::Merge(narrowed))
        .await;
    assert!(
        failed
            .unwrap_err()
            .to_string()
            .contains("vpod.graphcore.ai")
    );
    let pods = native.pods();
    for name in ["first", "gated"] {
        pods.delete(name, &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
    }
    native.once_nothing_is_left().await;
}
