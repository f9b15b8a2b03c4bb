//! The control plane itself: it responds, ends with its owner, and is lent to one test after the
//! other.

use cluster::control_plane::ControlPlane;
use http::Request;
use ipu_api::crd;
use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::definitions::{define, loose};
use crate::planes;

/// Number of processes whose command line contains `text`.
fn processes_with(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let command_lines =
        entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    command_lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}

async fn make_a_config_map(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = ConfigMap {
        metadata: ObjectMeta {
            generate_name: Some("test-".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    assert!(made.metadata.uid.is_some());
}

#[tokio::test]
async fn it_ends_with_its_owner() {
    let control_plane = ControlPlane::start().await.unwrap();
    make_a_config_map(control_plane.client().await.unwrap()).await;
    let folder = control_plane.kubeconfig();
    let folder = folder.parent().unwrap().to_owned();
    let mark = folder.to_str().unwrap();
    assert_eq!(processes_with(mark), 2);
    drop(control_plane);
    assert_eq!(processes_with(mark), 0);
    assert!(!folder.exists());
}

async fn create(client: &Client, path: &str, object: &Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    client.request_text(request).await.unwrap();
}

/// Leaves what is hard to remove: objects with finalizers, a changed namespace, a changed CRD, and
/// a webhook and a policy that deny every ConfigMap.
async fn leave_objects(client: &Client) {
    let held = json!(["tests.graphcore.ai/hold"]);
    let team = json!({"metadata": {"name": "team", "finalizers": held}});
    create(client, "/api/v1/namespaces", &team).await;
    let owner = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "web", "uid": "of-web",
    });
    let partition = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "team.web-0", "finalizers": held},
        "spec": {"owner": owner, "slot": 0, "ipus": 4, "gcds": 1},
    });
    create(
        client,
        "/apis/graphcore.ai/v1alpha1/ipupartitions",
        &partition,
    )
    .await;
    define(client, &loose(crd::ipujob())).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let params = PatchParams::default();
    let labelled = namespaces.patch("default", &params, &label).await;
    labelled.unwrap();
    deny_config_maps(client).await;
}

async fn deny_config_maps(client: &Client) {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"],
    }]);
    let policy = json!({
        "metadata": {"name": "deny"},
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "false"}],
        },
    });
    let binding = json!({
        "metadata": {"name": "deny"},
        "spec": {"policyName": "deny", "validationActions": ["Deny"]},
    });
    let webhook = json!({
        "metadata": {"name": "deny"},
        "webhooks": [{
            "name": "deny.graphcore.ai", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules,
        }],
    });
    for (plural, object) in [
        ("validatingadmissionpolicies", &policy),
        ("validatingadmissionpolicybindings", &binding),
        ("mutatingwebhookconfigurations", &webhook),
        ("validatingwebhookconfigurations", &webhook),
    ] {
        create(client, &format!("{group}/{plural}"), object).await;
    }
}

#[tokio::test]
async fn control_plane_is_lent_again_without_the_objects_of_its_last_user() {
    let plane = planes::with_definitions().await;
    let server = plane.server().to_owned();
    leave_objects(&plane.client().await.unwrap()).await;
    drop(plane);

    let plane = planes::with_definitions().await;
    assert_eq!(plane.server(), server);
    let client = plane.client().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let all = namespaces.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
    let of_api_server = ["default", "kube-node-lease", "kube-public", "kube-system"];
    assert_eq!(names, of_api_server);
    assert!(!all.items[0].labels().contains_key("a"));
    let partitions: Api<IPUPartition> = Api::all(client.clone());
    let left = partitions.list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.len(), 0);
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let job = definitions.get("ipujobs.graphcore.ai").await.unwrap();
    assert_eq!(job.spec.versions, crd::ipujob().spec.versions);
    make_a_config_map(client).await;
    drop(plane);

    let plane = planes::empty().await;
    assert_eq!(plane.server(), server);
    let definitions = Api::<CustomResourceDefinition>::all(plane.client().await.unwrap());
    let left = definitions.list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.len(), 0);
}
