//! `ipu-node` on a real API server, with a token that is bound to a Pod of a node: what it reports
//! of a node, and what a stolen token can change.

mod faults;
mod token;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use cluster::command::CommandError;
use cluster::wait::{Seen, eventually};
use futures::StreamExt;
use ipu_node::options::NodeOptions;
use ipu_node::requirements::Requirements;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tests::documents::{API_SERVER, Typed};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::chart::admin::Admin;
use crate::job::single;
use crate::job_fixture::{self, JobFixture};

/// Label of the V-IPU controller of the tests.
const LABEL: &str = "ipunode";

/// Definition of NetworkAttachmentDefinitions, as Multus installs it.
pub(crate) fn network_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {
            "group": "k8s.cni.cncf.io",
            "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions",
                "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// An installed release that checks nodes, and two nodes with a Pod of `ipu-node` each.
struct Release {
    admin: Admin,
    client: Client,
}

impl Release {
    async fn new(name: &'static str) -> Self {
        let admin = Admin::new(name).await;
        let values = "ipuNode.enabled=true,ipuNode.networkAttachmentDefinitions={default/rdma-net}";
        admin.helm_upgrade(&["--set", values]);
        let client = client(&admin, None).await;
        let release = Self { admin, client };
        for node in ["node-a", "node-b"] {
            release.node(node).await;
        }
        release
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates a node as a kubelet does, and a Pod of `ipu-node` on it.
    async fn node(&self, name: &str) {
        let node = json!({"metadata": {"name": name, "labels": {LABEL: "pod1"}}});
        let node = serde_json::from_value(node).unwrap();
        let params = PostParams::default();
        self.nodes().create(&params, &node).await.unwrap();
        let status = json!({"status": {
            "capacity": {"cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let (params, status) = (PatchParams::default(), Patch::Strategic(&status));
        let patched = self.nodes().patch_status(name, &params, &status).await;
        patched.unwrap();
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": name,
                "serviceAccountName": self.account(),
                "containers": [{"name": "node", "image": "ipu-operator"}],
            },
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.admin.name);
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    fn account(&self) -> String {
        format!("{}-node", self.admin.name)
    }

    /// A client with a token of the account, bound to the Pod on a node. `None`: bound to nothing.
    async fn with_token(&self, node: Option<&str>) -> Client {
        let account = self.account();
        let mut create = vec!["create", "token", &account, "--namespace", self.admin.name];
        if let Some(node) = node {
            create.extend(["--bound-object-kind=Pod", "--bound-object-name", node]);
        }
        let token = self.admin.kubectl(&create).unwrap();
        client(&self.admin, Some(token.trim())).await
    }

    /// Creates the NetworkAttachmentDefinition that the checks require, and its definition.
    async fn create_network(&self) {
        let definition = self
            .admin
            .file("definition.json", &network_definition().to_string());
        self.admin
            .kubectl(&["create", "--filename", &definition])
            .unwrap();
        eventually("the network is created", async || {
            self.create_only_network()
        })
        .await;
    }

    /// Creates the NetworkAttachmentDefinition, whose definition exists.
    fn create_only_network(&self) -> Result<String, CommandError> {
        let network = json!({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "rdma-net", "namespace": "default"},
        });
        let network = self.admin.file("network.json", &network.to_string());
        self.admin.kubectl(&["create", "--filename", &network])
    }

    async fn condition(&self, reason: &str) -> Node {
        eventually(&format!("node-a has the reason {reason}"), async || {
            let node = self.nodes().get("node-a").await.unwrap();
            Seen::when(node, |node| report(node)["reason"] == reason)
        })
        .await
    }
}

/// A client with the credentials of the kubeconfig, or with a token.
async fn client(admin: &Admin, token: Option<&str>) -> Client {
    let text = fs::read_to_string(&admin.kubeconfig).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    if let Some(token) = token {
        kubeconfig["users"][0]["user"] = json!({"token": token});
    }
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// The condition of `ipu-node`.
fn report(node: &Node) -> Value {
    let status = json!(node.status);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions = conditions.into_iter();
    let own = conditions.find(|condition| condition["type"] == "graphcore.ai/IPUReady");
    own.unwrap_or_default()
}

fn label(node: &Node) -> Option<&str> {
    let labels = node.metadata.labels.as_ref()?;
    labels.get("graphcore.ai/ipu-ready").map(String::as_str)
}

/// Replaces a file at once, as the kernel changes those of `/sys`.
fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let new = path.parent().unwrap().join("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, path).unwrap();
}

/// Path of the state of the port of the only RDMA device.
const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1/state";

/// Options of the checks of node-a, whose files are in this folder.
fn options(folder: &Path, controller: u16) -> NodeOptions {
    write(
        &folder.join("controllers.yaml"),
        &format!("127.0.0.1:{controller}:{LABEL}=pod1\n"),
    );
    write(&folder.join(PORT), "4: ACTIVE\n");
    write(&folder.join("cni/00-multus.conf"), "{}");
    NodeOptions {
        node: "node-a".to_owned(),
        controllers: folder.join("controllers.yaml"),
        sys_dir: folder.join("sys"),
        cni_dir: folder.join("cni"),
        proc_dir: "/proc".into(),
        connect_timeout_seconds: 60,
        requirements: Requirements {
            rdma: true,
            networks: vec!["default/rdma-net".parse().unwrap()],
            ..Requirements::default()
        },
    }
}

#[tokio::test]
async fn a_result_is_reported_once_and_changes_with_the_node() {
    let release = Release::new("node-checks").await;
    let before = release.nodes().get("node-a").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(folder.path(), listener.local_addr().unwrap().port());
    let controller = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let (client, stop) = (
        release.with_token(Some("node-a")).await,
        CancellationToken::new(),
    );
    let (running, stopped) = (options.clone(), stop.clone());
    let running = tokio::spawn(async move {
        let interval = Duration::from_millis(20);
        ipu_node::run(client, &running, interval, &stopped).await;
    });

    let node = release.condition("NetworkMissing").await;
    assert_eq!(
        (label(&node), &report(&node)["status"]),
        (Some("false"), &json!("False"))
    );
    release.create_network().await;
    let node = release.condition("ChecksPassed").await;
    assert_eq!(label(&node), Some("true"));
    let checks = node.metadata.annotations.unwrap();
    let checks: Value = serde_json::from_str(&checks["graphcore.ai/ipu-checks"]).unwrap();
    assert_eq!(checks[0]["check"], "controller-label");
    assert_eq!(checks[1]["outcome"], "ok");

    write(&folder.path().join(PORT), "1: DOWN\n");
    let node = release.condition("RDMALinkDown").await;
    assert_eq!(label(&node), Some("false"));
    controller.abort();
    assert!(controller.await.unwrap_err().is_cancelled());
    let node = release.condition("ControllerUnreachable").await;
    let message = report(&node)["message"].to_string();
    assert!(message.contains("refuses connections"), "{message}");
    stop.cancel();
    running.await.unwrap();

    let expected = [
        "NetworkMissing",
        "ChecksPassed",
        "RDMALinkDown",
        "ControllerUnreachable",
    ];
    assert_eq!(reported(&release, &before).await, expected);
    check_events(&release, &expected).await;
    clean_up(&release).await;
}

/// Runs the commands that remove the results from the nodes, and expects that nothing else is
/// removed.
async fn clean_up(release: &Release) {
    let path = format!("{}/docs/nodes.md", release.admin.chart());
    let text = fs::read_to_string(path).unwrap();
    let page = Typed {
        document: "charts/ipu-operator/docs/nodes",
        marks: &[API_SERVER],
    };
    for block in page.blocks(&text) {
        release.admin.shell(block.commands).unwrap();
    }
    let node = release.nodes().get("node-a").await.unwrap();
    assert_eq!((label(&node), report(&node)), (None, Value::Null));
    assert_eq!(
        node.metadata.annotations.unwrap_or_default(),
        BTreeMap::new()
    );
    assert_eq!(node.metadata.labels.unwrap()[LABEL], "pod1");
    let conditions = json!(node.status.unwrap().conditions);
    assert_eq!(conditions[0]["type"], "Ready");
}

/// The reasons that were written to node-a since then: each write of the Node is one event of a
/// watch.
async fn reported(release: &Release, since: &Node) -> Vec<String> {
    let params = WatchParams::default().fields("metadata.name=node-a");
    let version = since.metadata.resource_version.as_deref().unwrap();
    let watch = release.nodes().watch(&params, version).await.unwrap();
    let mut watch = std::pin::pin!(watch);
    let mut reasons = Vec::new();
    while reasons
        .last()
        .is_none_or(|last| last != "ControllerUnreachable")
    {
        let Some(Ok(WatchEvent::Modified(node))) = watch.next().await else {
            panic!("the watch has only changes of the node");
        };
        reasons.push(report(&node)["reason"].as_str().unwrap().to_owned());
    }
    reasons
}

/// Expects one event for each reason.
async fn check_events(release: &Release, reasons: &[&str]) {
    let events: Api<Event> = Api::namespaced(release.client.clone(), "default");
    let params =
        ListParams::default().fields("involvedObject.kind=Node,involvedObject.name=node-a");
    for reason in reasons {
        let found = events.list(&params).await.unwrap().items;
        let found = found
            .iter()
            .filter(|event| event.reason.as_deref() == Some(*reason));
        assert_eq!(found.count(), 1, "{reason}");
    }
}

#[tokio::test]
async fn a_worker_of_a_job_avoids_nodes_with_a_failed_check() {
    let fixture = JobFixture::new("node-affinity").await;
    let client = fixture.pods().into_client();
    let mut settings = job_fixture::settings();
    settings.pods.avoid_failed_nodes = true;
    let controller = fixture.controller(client, settings);
    fixture.submit(&single("train")).await;
    fixture.partition_ready(0).await;
    let worker = fixture.pod_exists("train-worker-0").await;
    let affinity = json!(worker.spec.unwrap().affinity.unwrap().node_affinity);
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let passed = json!({"key": "graphcore.ai/ipu-ready", "operator": "NotIn", "values": ["false"]});
    assert_eq!(*terms, json!([{"matchExpressions": [passed]}]));
    controller.abort();
}
