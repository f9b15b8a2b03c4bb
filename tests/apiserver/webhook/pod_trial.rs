//! The warning about Pods that the API server would refuse, and which examples Pod Security
//! `restricted` accepts.

use std::path::Path;

use ipu_jobs::build::{AgentDelivery, PodSettings};
use ipu_jobs::trial;
use ipu_runtime::dry_run::DryRuns;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Pod};
use kube::api::{Api, PostParams};
use release::guests::checkout;
use serde_json::{Value, json};

use super::fixture::Webhooks;
use super::view::View;
use super::{example, job};

/// Creates a namespace in which Pod Security enforces `restricted`.
async fn restricted(webhooks: &View, name: &str) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {
        "name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }}))
    .unwrap();
    let namespaces: Api<Namespace> = Api::all(webhooks.client());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_job_that_pod_security_will_refuse_is_warned_of() {
    let webhooks = Webhooks::shared().await;
    restricted(&webhooks, "trial-restricted").await;
    let view = webhooks.in_namespace("trial-restricted");
    let made = view.create(&job("refused", |_| {})).await.unwrap();
    let warnings = made.warnings.join("\n");
    let expected = "the API server refuses Pod refused-worker-0 now: violates PodSecurity";
    assert!(warnings.contains(expected), "{warnings}");
    assert!(warnings.contains("privileged"), "{warnings}");
    let pods: Api<Pod> = Api::namespaced(webhooks.client(), "trial-restricted");
    assert!(
        pods.list(&Default::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn a_launcher_and_a_changed_template_are_tried_too() {
    let webhooks = Webhooks::shared().await;
    let name = "trial-limited";
    let namespace = json!({"metadata": {"name": name}});
    let namespaces: Api<Namespace> = Api::all(webhooks.client());
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    let post = PostParams::default();
    namespaces.create(&post, &namespace).await.unwrap();
    let limit = json!({
        "metadata": {"name": "memory"},
        "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]},
    });
    let limit: LimitRange = serde_json::from_value(limit).unwrap();
    let limits: Api<LimitRange> = Api::namespaced(webhooks.client(), name);
    limits.create(&post, &limit).await.unwrap();
    let view = webhooks.in_namespace(name);
    let memory = |amount: &str| json!({"limits": {"memory": amount}});
    let small = job("resized", |job| {
        let container = &mut job["spec"]["workers"]["template"]["spec"]["containers"][0];
        container["resources"] = memory("512Mi");
    });
    let made = view.create(&small).await.unwrap();
    assert_eq!(made.warnings, [""; 0]);
    let mut containers = small["spec"]["workers"]["template"]["spec"]["containers"].clone();
    containers[0]["resources"] = memory("2Gi");
    let large = json!({"spec": {"workers": {"template": {"spec": {"containers": containers}}}}});
    let warnings = view.patch("resized", &large).await.unwrap().warnings;
    let expected = "refuses Pod resized-worker-0 now: maximum memory usage per Container is 1Gi";
    assert!(warnings.join("\n").contains(expected), "{warnings:?}");
    let scaled = view
        .patch("resized", &json!({"spec": {"jobInstances": 2}}))
        .await;
    assert_eq!(scaled.unwrap().warnings, [""; 0]);
}

/// The examples that Pod Security `restricted` refuses, and a part of its reason.
const REFUSED: [(&str, &str); 5] = [
    ("04-training.yaml", "runAsNonRoot != true"),
    ("05-training-with-volume.yaml", "runAsNonRoot != true"),
    ("06-inference.yaml", "runAsNonRoot != true"),
    ("07-rdma.yaml", "IPC_LOCK"),
    ("08-alpha-5.yaml", "runAsNonRoot != true"),
];

fn settings() -> PodSettings {
    PodSettings {
        worker_host_network: false,
        avoid_failed_nodes: false,
        launcher_image: "example.org/ipu-operator:1".to_owned(),
        launcher_image_pull_policy: None,
        agent_delivery: AgentDelivery::Init,
        launcher_resources: None,
        launcher_policy: None,
        start_timeout: None,
    }
}

/// The manifests directly in a folder of the examples, with their names.
fn manifests(folder: &str) -> Vec<(String, Value)> {
    let files = std::fs::read_dir(checkout().join("examples").join(folder)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "yaml"))
        .filter(|name| name != "vipu-simulator.yaml")
        .collect();
    names.sort();
    let read = |name: String| {
        let manifest = example(&format!("{folder}/{name}"));
        (name, manifest)
    };
    names.into_iter().map(read).collect()
}

#[tokio::test]
async fn examples_pass_restricted_where_they_can() {
    let webhooks = Webhooks::shared().await;
    restricted(&webhooks, "trial-examples").await;
    let view = webhooks.in_namespace("trial-examples");
    let pods: Api<Pod> = Api::namespaced(webhooks.client(), "trial-examples");
    let mut refused = Vec::new();
    for (name, manifest) in manifests(".") {
        // The webhooks map the fields of old manifests.
        let made = view.create_dry(&manifest).await.unwrap().object;
        let tried = trial::pods(&made, &settings());
        assert!(!tried.is_empty(), "{name}");
        for pod in tried {
            let reason = pod.refusal(&DryRuns::default(), &pods).await;
            refused.extend(reason.map(|reason| (name.clone(), reason)));
        }
    }
    for (name, reason) in &refused {
        let expected = REFUSED.iter().find(|(expected, _)| expected == name);
        let expected = expected.unwrap_or_else(|| panic!("{name}: {reason}"));
        assert!(reason.contains(expected.1), "{name}: {reason}");
    }
    for (name, _) in REFUSED {
        assert!(refused.iter().any(|(found, _)| found == name), "{name}");
    }
}

#[tokio::test]
async fn agent_of_an_image_passes_restricted() {
    let webhooks = Webhooks::shared().await;
    restricted(&webhooks, "trial-agent").await;
    let view = webhooks.in_namespace("trial-agent");
    let pods: Api<Pod> = Api::namespaced(webhooks.client(), "trial-agent");
    let settings = PodSettings {
        agent_delivery: AgentDelivery::Image,
        ..settings()
    };
    let manifest = example("02-parallel.yaml");
    let made = view.create_dry(&manifest).await.unwrap().object;
    let tried = trial::pods(&made, &settings);
    assert_eq!(tried.len(), 2);
    for pod in tried {
        assert_eq!(pod.refusal(&DryRuns::default(), &pods).await, None);
        let parameters = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let kept = pods.create(&parameters, &pod.usual).await.unwrap();
        let volume = json!(kept.spec.unwrap().volumes.unwrap()[0]);
        assert_eq!(volume["name"], "ipu-operator-agent");
        assert_eq!(volume["image"]["reference"], settings.launcher_image);
    }
}

#[tokio::test]
async fn graphcores_native_examples_need_a_capability_for_rdma() {
    let webhooks = Webhooks::shared().await;
    restricted(&webhooks, "trial-native").await;
    let pods: Api<Pod> = Api::namespaced(webhooks.client(), "trial-native");
    for (name, manifest) in manifests("native") {
        let mut pod = manifest["spec"]["template"].clone();
        pod["metadata"]["name"] = json!("native");
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let reason = DryRuns::default()
            .refusal(&pods, &pod)
            .await
            .unwrap_or_default();
        assert!(reason.contains("IPC_LOCK"), "{name}: {reason}");
    }
}
