//! `ipu-operator support-bundle` on a real API server: the archive contains every object, and no
//! secret.

use std::io::Read;

use cluster::kubeconfig;
use flate2::read::GzDecoder;
use ipu_operator::support::{self, SupportOptions};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::job_fixture::JobFixture;

/// A text that must not be in the bundle, wherever the test puts it.
const PLANTED: &str = "correct-horse-battery";

/// Another one, in an annotation and in no environment variable.
const ANNOTATED: &str = "staple-in-an-annotation";

/// Another one, only in a Secret.
const KEPT: &str = "kept-in-a-secret-alone";

async fn create<K>(client: &Client, namespace: &str, object: Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn job() -> Value {
    let env = json!([{ "name": "WANDB_API_KEY", "value": PLANTED }]);
    let template = json!({ "spec": { "containers": [{
        "name": "main", "image": "image", "env": env,
        "command": ["train", "--token", ANNOTATED, format!("--password={KEPT}")],
    }] } });
    let mut job = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": { "name": "job", "annotations": { "example.com/note": ANNOTATED } },
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "1",
            "workers": { "template": template },
        },
    });
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    job["metadata"]["annotations"][applied] = json!(job.to_string());
    job
}

async fn plant(fixture: &JobFixture) {
    let (client, namespace) = (&fixture.client, fixture.namespace.as_str());
    fixture.submit(&job()).await;
    let secret = json!({ "metadata": { "name": "key" }, "stringData": { "key": KEPT } });
    create::<Secret>(client, namespace, secret).await;
    let labels = json!({ "app.kubernetes.io/part-of": "ipu-operator" });
    let pod = json!({
        "metadata": { "name": "ipu-operator-vipu-proxy-1", "labels": labels },
        "spec": { "containers": [{
            "name": "vipu-proxy", "image": "image",
            "env": [{ "name": "HTTPS_PROXY", "value": format!("http://u:{PLANTED}@proxy") }],
            "ports": [{ "name": "https", "containerPort": 8443 }],
        }] },
    });
    create::<Pod>(client, namespace, pod).await;
    let list = json!({
        "metadata": { "name": "ipu-operator-vipu-controllers" },
        "data": { "controllers.yaml": "pod1.example.com:8090:ipunode=pod1" },
    });
    create::<ConfigMap>(client, namespace, list).await;
    let event = json!({
        "metadata": { "name": "failed" },
        "involvedObject": { "kind": "IPUJob", "name": "job", "namespace": namespace },
        "reason": "IPUJobFailed",
        "message": format!("exit code 1: {PLANTED} was refused"),
    });
    create::<Event>(client, namespace, event).await;
}

/// Returns path and text of each file of an archive.
fn unpacked(archive: &[u8]) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let file = |entry: std::io::Result<tar::Entry<_>>| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let (_, path) = path.split_once('/').unwrap();
        (path.to_owned(), text)
    };
    archive.entries().unwrap().map(file).collect()
}

#[tokio::test]
async fn a_bundle_contains_every_object_and_no_secret() {
    let fixture = JobFixture::new("support").await;
    plant(&fixture).await;
    let mut config = kubeconfig::config(&fixture.kubeconfig).await.unwrap();
    // As the command does it.
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = SupportOptions {
        namespace: fixture.namespace.clone(),
        fullname: "ipu-operator".to_owned(),
        tracker: "ipu-partitions-tracker".to_owned(),
        output: folder.path().join("support.tar.gz"),
        log_lines: 100,
        metrics_token: None,
    };
    let printed = support::run(client.clone(), &options).await.unwrap();
    assert!(printed.contains("reads failed"), "{printed}");
    let files = unpacked(&std::fs::read(&options.output).unwrap());
    for (path, text) in &files {
        for secret in [PLANTED, ANNOTATED, KEPT] {
            assert!(!text.contains(secret), "{path}: {text}");
        }
    }
    let says = |path: &str, expected: &str| {
        let found = files.iter().find(|(found, _)| found == path);
        let (_, text) = found.unwrap_or_else(|| panic!("no {path} in {files:?}"));
        assert!(text.contains(expected), "{path}: {text}");
    };
    says("README.txt", env!("CARGO_PKG_VERSION"));
    says("api-server.txt", "gitVersion");
    says("ipujobs.yaml", "WANDB_API_KEY");
    says("ipujobs.yaml", "--password=(redacted)");
    says("definitions/ipujobs.yaml", "storedVersions");
    says("events/IPUJob.yaml", "was refused");
    says("pods-of-operator.yaml", "HTTPS_PROXY");
    says(
        "configmaps/ipu-operator-vipu-controllers.yaml",
        "pod1.example.com:8090",
    );
    // The bundle names what cannot be read: no proxy, no token, no summary.
    for missing in [
        "proxy/controllers.txt",
        "metrics/ipu-operator-vipu-proxy-1.txt: no token",
        "configmaps/ipu-partitions-tracker.yaml",
    ] {
        says("errors.txt", missing);
    }

    let again = support::run(client.clone(), &options).await;
    let error = again.unwrap_err().to_string();
    assert!(error.contains("must not exist yet"), "{error}");
    let mut elsewhere = options.clone();
    elsewhere.namespace = "../secrets".to_owned();
    let refused = support::run(client, &elsewhere).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("--namespace ../secrets"), "{error}");
}
