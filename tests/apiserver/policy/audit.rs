//! `ipu-operator policy audit` names exactly the objects that the rule refuses once it is active.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::{StreamExt, stream};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupolicy::PolicyPhase;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use release::guests;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tests::debug_operator;

use super::fixture::Fixture;

/// The jobs of the cluster.
const JOBS: usize = 200;

/// The native Pods of the cluster.
const PODS: usize = 10;

/// Objects that are created at the same time.
const AT_ONCE: usize = 8;

/// A namespace that the rule selects.
const TRIAL: &str = "trial";

/// Exit code of an audit that finds objects.
const REFUSED: Option<i32> = Some(3);

fn namespace_of(number: usize) -> &'static str {
    if number.is_multiple_of(4) {
        "default"
    } else {
        TRIAL
    }
}

/// A job that requests 1 to 16 IPUs. Every third one has the label that the rule selects.
pub(super) fn job(number: usize) -> Value {
    let mut job = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
        "metadata": {"name": format!("job-{number}"), "namespace": namespace_of(number)},
        "spec": {
            "jobInstances": 1, "ipusPerJobInstance": (1 << (number % 5)).to_string(), "suspend": true,
            "workers": {"template": {"spec": {"containers": [{"name": "x", "image": "x"}]}}},
        },
    });
    if number.is_multiple_of(3) {
        job["metadata"]["labels"] = json!({"audited": "yes"});
    }
    job
}

/// A Pod with the same requests and labels.
pub(super) fn pod(number: usize) -> Value {
    let mut pod = job(number);
    let ipus = pod["spec"]["ipusPerJobInstance"].take();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(format!("pod-{number}"));
    pod["metadata"]["annotations"] = json!({"graphcore.ai/ipu": ipus});
    pod["spec"] = json!({
        "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "none"}],
    });
    pod
}

/// A Pod that shares an IPUPartition. No rule about sizes applies to it.
fn sharing() -> Value {
    let mut pod = pod(3);
    pod["metadata"]["name"] = json!("sharing");
    pod["metadata"]["annotations"] = json!({"graphcore.ai/partition": "shared"});
    pod
}

/// A rule about some namespaces, labels and names.
fn rule() -> Value {
    json!({
        "hook": "Validation",
        "module": {"image": {"file": "validation.wasm"}},
        "settings": {"maxIpusPerJob": 4},
        "match": {
            "namespaceSelector": {"matchLabels": {"tier": "trial"}},
            "objectSelector": {"matchLabels": {"audited": "yes"}},
            "matchConditions": [{
                "name": "not-7",
                "expression": "request.operation == 'CREATE' && !object.metadata.name.endsWith('7')",
            }],
        },
    })
}

/// Whether [`rule`] is called about an object.
fn is_matched(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["namespace"] == TRIAL
        && metadata["labels"]["audited"] == "yes"
        && metadata["name"]
            .as_str()
            .is_some_and(|name| !name.ends_with('7'))
}

/// Creates an object, or does so in a dry run. Returns the code of the error.
async fn create<K>(client: &Client, object: &Value, is_dry_run: bool) -> Option<u16>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + DeserializeOwned
        + serde::Serialize
        + Clone
        + std::fmt::Debug,
{
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let params = PostParams {
        dry_run: is_dry_run,
        ..PostParams::default()
    };
    let object = serde_json::from_value(object.clone()).unwrap();
    match api.create(&params, &object).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(error) => panic!("{error}"),
    }
}

/// Creates the namespace that the rule selects.
pub(super) async fn create_namespace(client: &Client) {
    let trial = json!({"metadata": {"name": TRIAL, "labels": {"tier": "trial"}}});
    let trial: Namespace = serde_json::from_value(trial).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(&PostParams::default(), &trial)
        .await
        .unwrap();
}

/// Creates all objects, or tries it in dry runs. Returns the names of those that an admission
/// webhook refuses: 422 is its refusal, and 409 comes after it, for an object that exists.
pub(super) async fn create_all(
    client: &Client,
    objects: &[Value],
    is_dry_run: bool,
) -> BTreeSet<String> {
    let answers = stream::iter(objects).map(|object| async move {
        let code = match object["kind"].as_str() {
            Some("Pod") => create::<Pod>(client, object, is_dry_run).await,
            _ => create::<IPUJob>(client, object, is_dry_run).await,
        };
        let expected: &[Option<u16>] = if is_dry_run {
            &[Some(409), Some(422)]
        } else {
            &[None]
        };
        assert!(expected.contains(&code), "{code:?} for {object}");
        (code == Some(422)).then(|| name(object))
    });
    let refused: Vec<_> = answers.buffer_unordered(AT_ONCE).collect().await;
    refused.into_iter().flatten().collect()
}

/// Kind, namespace and name of an object, or of a finding if the fields are there.
fn name(object: &Value) -> String {
    let metadata = object.get("metadata").unwrap_or(object);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    format!("{} {namespace}/{name}", text(&object["kind"]))
}

/// Runs an audit. Returns its exit code and its output.
async fn audit(fixture: &Fixture, arguments: Vec<String>) -> (Option<i32>, String) {
    let kubeconfig = fixture.webhooks.kubeconfig();
    let ran = tokio::task::spawn_blocking(move || {
        let mut program = Command::new(debug_operator::program().unwrap());
        program.args(["policy", "audit"]).args(arguments);
        program.env("KUBECONFIG", kubeconfig).output().unwrap()
    });
    let ran = ran.await.unwrap();
    let error = String::from_utf8(ran.stderr).unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(!printed.is_empty(), "{error}");
    (ran.status.code(), printed)
}

/// The arguments for a policy and a form of the output.
fn arguments(policy: &str, output: &str) -> Vec<String> {
    let guests: PathBuf = guests::build().unwrap();
    let guests = guests.to_string_lossy().into_owned();
    [policy, "--guests-dir", &guests, "--output", output]
        .map(str::to_owned)
        .to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_names_exactly_the_objects_that_the_rule_refuses_afterwards() {
    let fixture = Fixture::start().await;
    let client = fixture.client.clone();
    create_namespace(&client).await;
    let pods = (0..PODS).map(pod).chain([sharing()]);
    let objects: Vec<_> = (0..JOBS).map(job).chain(pods).collect();
    assert!(create_all(&client, &objects, false).await.is_empty());

    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("rule.json");
    let policy = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
        "metadata": {"name": "rule"}, "spec": rule(),
    });
    fs::write(&manifest, policy.to_string()).unwrap();
    let of_file = manifest.to_string_lossy().into_owned();
    let (code, printed) = audit(&fixture, arguments(&of_file, "json")).await;
    assert_eq!(code, REFUSED);
    let report: Value = serde_json::from_str(&printed).unwrap();
    let violations = report["violations"].as_array().unwrap();
    let named: BTreeSet<_> = violations.iter().map(name).collect();
    assert_eq!(report["summary"]["objects"], json!(objects.len()));
    assert_eq!(report["summary"]["refused"], json!(named.len()));
    assert_eq!(report["summary"]["failed"], json!(0));
    let unmatched = objects.iter().filter(|object| !is_matched(object));
    assert_eq!(report["summary"]["notMatched"], json!(unmatched.count()));
    for part in ["IPUJob trial/", "Pod trial/"] {
        assert!(named.iter().any(|name| name.starts_with(part)), "{named:?}");
    }

    fixture.apply("rule", rule()).await.unwrap();
    fixture.once_in("rule", PolicyPhase::Active).await;
    cluster::wait::eventually("the rule refuses what the audit names", async || {
        let refused = create_all(&client, &objects, true).await;
        cluster::wait::Seen::when(refused, |refused| *refused == named)
    })
    .await;

    // The policy of the cluster is the same one, and a namespace that it does not select has
    // nothing to refuse.
    let (code, printed) = audit(&fixture, arguments("ipupolicy/rule", "table")).await;
    assert_eq!(code, REFUSED);
    let lines: BTreeSet<_> = printed
        .lines()
        .filter(|line| line.contains("trial/"))
        .collect();
    assert_eq!(lines.len(), named.len(), "{printed}");
    let mut chosen = arguments("ipupolicy/rule", "table");
    chosen.extend(["--namespace".to_owned(), "default".to_owned()]);
    let (code, printed) = audit(&fixture, chosen).await;
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains(" 0 would be refused"), "{printed}");
    audits_updates_and_other_namespaces(&fixture, policy, &manifest).await;
}

/// A rule about updates is not judged, and no object that no release serves is reported.
async fn audits_updates_and_other_namespaces(fixture: &Fixture, mut policy: Value, file: &Path) {
    policy["spec"]["match"]["matchConditions"] = json!([{
        "name": "grows",
        "expression": "request.operation == 'UPDATE' && object.spec.jobInstances > oldObject.spec.jobInstances",
    }]);
    fs::write(file, policy.to_string()).unwrap();
    let of_file = file.to_string_lossy().into_owned();
    let (code, printed) = audit(fixture, arguments(&of_file, "table")).await;
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.starts_with("only at updates: not judged: "),
        "{printed}"
    );

    let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({"metadata": {
        "name": "another",
        "labels": {"app.kubernetes.io/part-of": "ipu-operator"},
        "annotations": {
            "graphcore.ai/operator-namespace": "ipu-a", "graphcore.ai/watch-namespaces": "default",
        },
    }}))
    .unwrap();
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client.clone());
    // The release of this test serves all namespaces.
    for one in configurations.list(&ListParams::default()).await.unwrap() {
        let annotations = &configuration.metadata.annotations;
        let annotated = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let params = PatchParams::default();
        let patched = configurations
            .patch(&one.name_any(), &params, &annotated)
            .await;
        patched.unwrap();
    }
    let params = PostParams::default();
    let created = configurations.create(&params, &configuration).await;
    created.unwrap();
    let (code, printed) = audit(fixture, arguments("ipupolicy/rule", "table")).await;
    assert_eq!(code, Some(0), "{printed}");
    assert!(!printed.contains(TRIAL), "{printed}");
    assert!(
        printed.contains("these namespaces alone: default\n"),
        "{printed}"
    );
}
