//! Invalid objects, under CRDs that accept everything, and without webhooks: neither process panics
//! or ends, and a valid job runs beside them.

use cluster::kubeconfig;
use cluster::wait::{Seen, eventually};
use ipu_api::crd;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::ipupolicy::IPUPolicy;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::definitions::{define, loose};
use crate::job::single;
use crate::processes::{Installation, Running};

/// Returns the definition with a status that accepts everything, too.
fn looser(definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut definition = loose(definition);
    let schema = definition.spec.versions[0].schema.as_mut().unwrap();
    let schema = schema.open_api_v3_schema.as_mut().unwrap();
    let properties = schema.properties.as_mut().unwrap();
    if let Some(status) = properties.get_mut("status") {
        status.properties = None;
        status.required = None;
        status.x_kubernetes_validations = None;
        status.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    schema.x_kubernetes_validations = None;
    definition
}

/// Numbers, lists, texts and maps instead of another type, and extreme values.
fn odd() -> Vec<Value> {
    let long = "x".repeat(100_000);
    let deep = (0..60).fold(json!(1), |inner, _| json!({"a": inner}));
    vec![
        json!(-1),
        json!(0),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(1.5),
        json!(""),
        json!("-1"),
        json!("99999999999999999999"),
        json!("\u{1b}[31m\u{202e}\r\n\u{0}"),
        json!("é\u{301}👩‍🚀"),
        json!(long),
        json!(true),
        json!([]),
        json!([[], {}, "a", 1]),
        json!({}),
        json!({"": ""}),
        deep,
    ]
}

/// Returns a valid object with one field changed, for each field and each odd value.
fn variants(good: &Value, places: &[&str]) -> Vec<Value> {
    let made = |place: &&str, value: Value| {
        let mut object = good.clone();
        if let Some(there) = object.pointer_mut(place) {
            *there = value;
        } else {
            let (parent, name) = place.rsplit_once('/').expect("a place is a path");
            object.pointer_mut(parent).expect("the place is there")[name] = value;
        }
        object
    };
    let each = |place| odd().into_iter().map(move |value| made(place, value));
    places.iter().flat_map(each).collect()
}

fn jobs() -> Vec<Value> {
    let mut good = single("odd");
    good["metadata"]["annotations"] = json!({"a": "b"});
    good["spec"]["launcher"] = json!({"command": ["mpirun"]});
    good["spec"]["restartPolicy"] = json!({"type": "Never"});
    let places = [
        "/spec",
        "/spec/jobInstances",
        "/spec/ipusPerJobInstance",
        "/spec/workersPerJobInstance",
        "/spec/modelReplicasPerWorker",
        "/spec/launcher",
        "/spec/launcher/command",
        "/spec/interactive",
        "/spec/restartPolicy",
        "/spec/restartPolicy/exitCodes",
        "/spec/restartPolicy/backOffLimit",
        "/spec/ttlSecondsAfterFinished",
        "/spec/activeDeadlineSeconds",
        "/spec/workers",
        "/spec/workers/strategy",
        "/spec/workers/template",
        "/spec/workers/template/metadata",
        "/spec/workers/template/spec",
        "/spec/workers/template/spec/containers",
        "/spec/workers/template/spec/nodeSelector",
        "/spec/workers/template/spec/volumes",
        "/spec/workers/template/spec/hostNetwork",
        "/status",
        "/status/run",
        "/status/conditions",
    ];
    good["status"] = json!({"launcherStatus": "Running"});
    variants(&good, &places)
}

fn partitions() -> Vec<Value> {
    let good = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUPartition",
        "metadata": {"name": "odd"},
        "spec": {
            "owner": {
                "apiVersion": "example.com/v1", "kind": "Notebook", "namespace": "default",
                "name": "odd", "uid": "1",
            },
            "slot": 0, "ipus": 4, "gcds": 1, "replicas": 1, "options": {}, "resetGeneration": 0,
        },
        "status": {"phase": "Ready", "attempts": [{"id": "p-odd", "controller": {}}]},
    });
    let places = [
        "/spec",
        "/spec/owner",
        "/spec/owner/namespace",
        "/spec/owner/uid",
        "/spec/slot",
        "/spec/ipus",
        "/spec/gcds",
        "/spec/replicas",
        "/spec/options",
        "/spec/resetGeneration",
        "/status",
        "/status/phase",
        "/status/generation",
        "/status/partitionId",
        "/status/controller",
        "/status/attempts",
        "/status/attempts/0",
        "/status/conditions",
        "/status/waiting",
    ];
    variants(&good, &places)
}

fn policies() -> Vec<Value> {
    let good = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUPolicy",
        "metadata": {"name": "odd"},
        "spec": {
            "hook": "Placement", "mode": "Enforce",
            "module": {"digest": "sha256:00", "configMap": {"name": "odd", "key": "odd"}},
        },
    });
    let places = [
        "/spec",
        "/spec/hook",
        "/spec/mode",
        "/spec/module",
        "/spec/module/digest",
        "/spec/module/configMap",
        "/spec/match",
        "/spec/limits",
        "/spec/rollback",
        "/spec/settings",
        "/spec/order",
        "/status",
    ];
    variants(&good, &places)
}

/// Creates the objects that the API server accepts, each under its own name. Returns their number.
async fn store<K>(client: &Client, objects: Vec<Value>) -> usize
where
    K: Resource<DynamicType = ()>,
{
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = if K::kind(&()) == "IPUJob" {
        Api::default_namespaced_with(client.clone(), &kind)
    } else {
        Api::all_with(client.clone(), &kind)
    };
    let mut stored = 0;
    for (number, mut object) in objects.into_iter().enumerate() {
        let name = format!("odd-{number}");
        object["metadata"]["name"] = json!(name);
        let Ok(object) = serde_json::from_value::<DynamicObject>(object) else {
            continue;
        };
        if api.create(&PostParams::default(), &object).await.is_err() {
            continue;
        }
        stored += 1;
        if let Some(status) = object.data.get("status") {
            let status = Patch::Merge(json!({"status": status}));
            // If the API server refuses the status, no process can read it.
            let _ = api
                .patch_status(&name, &PatchParams::default(), &status)
                .await;
        }
    }
    stored
}

/// Accepts everything: loose CRDs, and webhooks that select no namespace.
async fn open(client: &Client) {
    for definition in crd::all() {
        define(client, &looser(definition)).await;
    }
    ask_nobody::<MutatingWebhookConfiguration>(client).await;
    ask_nobody::<ValidatingWebhookConfiguration>(client).await;
}

async fn ask_nobody<K>(client: &Client)
where
    K: Resource<DynamicType = ()>,
{
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    for mut found in api.list(&Default::default()).await.unwrap() {
        for webhook in found.data["webhooks"].as_array_mut().unwrap() {
            webhook["namespaceSelector"] = json!({"matchLabels": {"asked": "nobody"}});
            webhook["objectSelector"] = json!({"matchLabels": {"asked": "nobody"}});
        }
        let (name, params) = (found.name_any(), PostParams::default());
        api.replace(&name, &params, &found).await.unwrap();
    }
}

/// Pods, nodes and lists that are as odd as the API server's own types allow.
async fn strangers(installation: &Installation) {
    let (client, params) = (&installation.client, PostParams::default());
    let pod = json!({
        "metadata": {"name": "odd", "labels": {
            "graphcore.ai/job-uid": "", "graphcore.ai/run": "x", "graphcore.ai/partition-id": "",
            "graphcore.ai/role": "king", "graphcore.ai/instance": "9.9",
        }},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    });
    // Nobody else may create a Pod with these labels, and earlier versions have created some.
    let operator = kubeconfig::client(&installation.account("controller")).await;
    let pods: Api<Pod> = Api::default_namespaced(operator.unwrap());
    pods.create(&params, &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": "odd", "labels": {"ipunode": ""}}});
    nodes
        .create(&params, &serde_json::from_value(node).unwrap())
        .await
        .unwrap();
    let tracker = json!({
        "metadata": {"name": "ipu-operator-log-level"}, "data": {"controller": "\u{1b}", "odd": ""},
    });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "ipu-operator");
    maps.create(&params, &serde_json::from_value(tracker).unwrap())
        .await
        .unwrap();
}

fn is_unharmed(process: &Running) {
    process.must_run();
    let said = process.said();
    assert!(!said.contains("panic"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_process_panics_on_any_of_them_and_a_good_job_runs() {
    let installation = Installation::new().await;
    let controller = installation.controller("controller", Vec::new()).await;
    let proxy = installation.proxy("proxy", Vec::new()).await;
    // The following objects request more IPUs than there are.
    installation.submit(&good()).await;
    installation.runs("good-worker-0").await;
    installation.once("good", JobState::Running).await;
    open(&installation.client).await;
    let stored = [
        store::<IPUJob>(&installation.client, jobs()).await,
        store::<IPUPartition>(&installation.client, partitions()).await,
        store::<IPUPolicy>(&installation.client, policies()).await,
    ];
    println!("odd objects stored: {stored:?}");
    assert!(stored.iter().all(|stored| *stored > 20), "{stored:?}");
    strangers(&installation).await;

    installation.ends("good-worker-0").await;
    installation.once("good", JobState::Completed).await;
    is_unharmed(&controller);
    is_unharmed(&proxy);

    // Both processes meet all of them at once when they start again.
    drop((controller, proxy));
    let controller = installation.controller("controller", Vec::new()).await;
    let proxy = installation.proxy("proxy", Vec::new()).await;
    installation
        .jobs()
        .delete("good", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the good job is gone", async || {
        let left = installation.jobs().get_opt("good").await.unwrap();
        Seen::when(left.map(|job| job.name_any()), Option::is_none)
    })
    .await;
    is_unharmed(&controller);
    is_unharmed(&proxy);
}

/// A valid job with few IPUs.
fn good() -> Value {
    let mut good = single("good");
    good["spec"]["ipusPerJobInstance"] = json!("1");
    good
}
