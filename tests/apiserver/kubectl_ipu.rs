//! `kubectl ipu` as a program on a real API server: a user with the chart's role for users sees
//! what the role allows, a user without rights gets an error about them, figures and pages follow
//! changes, and an admin cordons and drains V-IPU controllers.

mod nodes;
mod operate;
mod watch;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use cluster::control_plane::pool::Loan;
use cluster::wait::eventually;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::debug_operator;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::chart::admin::{Admin, KUBERNETES};
use crate::job::single;
use crate::planes;

/// Release and fullname.
const RELEASE: &str = "ipu-operator";

/// The reason why the partition of the job waits.
const FULL: &str =
    "16 of its 16 IPUs are used, and the largest free partition is 0, smaller than the 4 requested";

/// An API server with the CRDs and the roles of the chart, and users who have the plugin.
pub(crate) struct Office {
    plane: Loan,
    pub(crate) client: Client,
    pub(crate) admin: Admin,
    plugin: PathBuf,
}

impl Office {
    pub(crate) async fn new() -> Self {
        // An initial build takes minutes, and blocks.
        let plugin = tokio::task::spawn_blocking(debug_operator::plugin);
        let plugin = plugin.await.unwrap().unwrap();
        let plane = planes::with_definitions().await;
        let admin = Admin::of(RELEASE, plane.kubeconfig());
        let client = plane.client().await.unwrap();
        let show = "--show-only=templates/user-roles.yaml";
        let roles = ["template", RELEASE, admin.chart(), KUBERNETES, show];
        let roles = admin.file("roles.yaml", &admin.helm(&roles).unwrap());
        admin.kubectl(&["create", "--filename", &roles]).unwrap();
        Self {
            plane,
            client,
            admin,
            plugin,
        }
    }

    /// The kubeconfig of a user.
    pub(crate) fn kubeconfig(&self, user: &str) -> String {
        let all = fs::read_to_string(self.plane.kubeconfig()).unwrap();
        let mut own: Value = serde_json::from_str(&all).unwrap();
        own["users"][0]["user"]["as"] = json!(user);
        self.admin.file(&format!("{user}.json"), &own.to_string())
    }

    pub(crate) fn command(&self, kubeconfig: &str, arguments: &[&str]) -> Command {
        let mut plugin = Command::new(&self.plugin);
        plugin.args(arguments).args(["--kubeconfig", kubeconfig]);
        plugin
    }

    fn run(&self, user: &str, arguments: &[&str]) -> Output {
        let kubeconfig = self.kubeconfig(user);
        self.command(&kubeconfig, arguments).output().unwrap()
    }

    /// Returns the output of a user's command, once it contains all of this.
    async fn printed(&self, user: &str, arguments: &[&str], parts: &[&str]) -> String {
        let what = format!("{user}: {arguments:?} prints {parts:?}");
        eventually(&what, async || {
            let output = self.run(user, arguments);
            let text = String::from_utf8(output.stdout).unwrap();
            let is_complete = parts.iter().all(|part| text.contains(part));
            if output.status.success() && is_complete {
                return Ok(text);
            }
            Err(text + &String::from_utf8_lossy(&output.stderr))
        })
        .await
    }

    /// Returns the error of a user's command that fails.
    fn refused(&self, user: &str, arguments: &[&str]) -> String {
        let output = self.run(user, arguments);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Creates a waiting job, as the operator leaves it. Returns its UID.
    async fn waiting_job(&self) -> String {
        let object: DynamicObject = serde_json::from_value(single("train")).unwrap();
        let (jobs, params) = (self.jobs(), PostParams::default());
        let made = jobs.create(&params, &object).await.unwrap();
        let status = json!({"status": {
            "launcherStatus": "Pending",
            "desiredReplicas": 1,
            "lastMessage": "partition not ready yet!",
            "conditions": [{
                "type": "PartitionsReady", "status": "False", "reason": "WaitingForPartition",
                "message": format!("instance 0: pod1:8090: {FULL}"),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }});
        self.report_job(&status).await;
        made.uid().unwrap()
    }

    /// The operator reports this of the job.
    async fn report_job(&self, patch: &Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = self.jobs().patch_status("train", &params, &patch).await;
        patched.unwrap();
    }

    fn jobs(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<IPUJob>(&());
        Api::namespaced_with(self.client.clone(), "default", &kind)
    }

    fn partitions(&self) -> Api<IPUPartition> {
        Api::all(self.client.clone())
    }

    /// Creates the partition of an owner, with this status.
    async fn partition(&self, kind: &str, owner: &str, uid: &str, status: Value) {
        let name = format!("default.{owner}-0");
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUPartition",
            "metadata": {"name": name},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": kind, "namespace": "default", "name": owner,
                    "uid": uid,
                },
                "slot": 0, "ipus": 4, "gcds": 1,
            },
        });
        let object = serde_json::from_value(object).unwrap();
        let params = PostParams::default();
        self.partitions().create(&params, &object).await.unwrap();
        self.change(&name, status).await;
    }

    async fn change(&self, name: &str, status: Value) {
        let (params, patch) = (
            PatchParams::default(),
            Patch::Merge(json!({"status": status})),
        );
        let partitions = self.partitions();
        let patched = partitions.patch_status(name, &params, &patch).await;
        patched.unwrap();
    }

    /// Creates a node that advertises the IPUs of pod1.
    async fn node(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = json!({"metadata": {"name": "node1", "labels": {"ipunode": "pod1"}}});
        let node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = json!({"status": {"capacity": {"graphcore.ai/ipu": "64"}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&status));
        nodes.patch_status("node1", &params, &patch).await.unwrap();
    }

    pub(crate) fn grant(&self, binding: &str, role: &str, user: &str) {
        let (role, of_user) = (format!("--clusterrole={role}"), format!("--user={user}"));
        let grant = ["create", binding, user, &role, &of_user];
        self.admin.kubectl(&grant).unwrap();
    }
}

fn waiting() -> Value {
    json!({"phase": "Pending", "waiting": [{"controller": "pod1:8090", "reason": FULL}]})
}

fn ready(id: &str) -> Value {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "ipunode",
        "labelValue": "pod1",
    });
    json!({"phase": "Ready", "controller": controller, "partitionId": id, "waiting": []})
}

#[tokio::test]
async fn users_see_what_their_rights_allow() {
    let office = Office::new().await;
    let uid = office.waiting_job().await;
    office.partition("IPUJob", "train", &uid, waiting()).await;
    let why = ["why", "train"];

    let refusal = office.refused("bob", &why);
    let expected = "ipujobs.graphcore.ai \"train\" is forbidden: User \"bob\" cannot get";
    assert!(refusal.contains(expected), "{refusal}");
    let refusal = office.refused("bob", &["top"]);
    assert!(refusal.contains("ipu-operator-view"), "{refusal}");
    let version = office.printed("bob", &["version"], &["kubectl-ipu "]).await;
    assert!(
        version.contains("ipu-operator: unknown: deployments.apps is forbidden"),
        "{version}"
    );

    // In one namespace the role allows to read the job, and its condition repeats the reasons.
    office.grant("rolebinding", "ipu-operator-view", "alice");
    let parts = [
        "IPUJob default/train: Pending",
        &format!("pod1:8090: {FULL}"),
        "Not shown:\n  the IPUPartitions, their reasons and the position in the queue: ",
        "  the Pods: pods is forbidden",
        "  the events: events is forbidden",
        "What to do:\n  no free capacity: wait, or request fewer IPUs\n",
    ];
    let page = office.printed("alice", &why, &parts).await;
    assert!(!page.contains("position 1"), "{page}");
    let missing = office.refused("alice", &["why", "other"]);
    assert!(
        missing.contains("there is no IPUJob other in namespace default"),
        "{missing}"
    );

    // In the whole cluster the role also allows to read the queue.
    office.grant("clusterrolebinding", "ipu-operator-view", "alice");
    let parts = [
        "Partitions:\n  default.train-0 (slot 0, 4 IPUs): Pending for ",
        ", position 1 of 1 in the queue\n",
    ];
    office.printed("alice", &why, &parts).await;
    let parts = ["you may not list the nodes", "\npod1:8090    -"];
    office.printed("alice", &["top"], &parts).await;
    let jobs = ["top", "jobs", "--output=json"];
    let jobs = office.printed("alice", &jobs, &["train"]).await;
    let jobs: Value = serde_json::from_str(&jobs).unwrap();
    assert_eq!(jobs["rows"][0]["name"], "train");
    assert_eq!(jobs["rows"][0]["waiting"], 4);
}

/// Creates a Pod that waits for its partition, and a warning about it. Returns its UID.
async fn waiting_pod(office: &Office, pods: &Api<Pod>) -> String {
    let pod = json!({
        "metadata": {"name": "notebook", "annotations": {"graphcore.ai/ipu": "4"}},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "schedulingGates": [{"name": "graphcore.ai/partition"}],
        },
    });
    let pod = serde_json::from_value(pod).unwrap();
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    let uid = pod.uid().unwrap();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "reported", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "notebook", "namespace": "default", "uid": uid},
        "type": "Warning", "reason": "PartitionLost", "message": "it is gone",
    });
    let event = office.admin.file("event.json", &event.to_string());
    let create = ["create", "--filename", &event];
    office.admin.kubectl(&create).unwrap();
    uid
}

#[tokio::test]
async fn an_admin_sees_pods_warnings_and_figures_that_follow_changes() {
    let office = Office::new().await;
    office.node().await;
    let pods: Api<Pod> = Api::namespaced(office.client.clone(), "default");
    let uid = waiting_pod(&office, &pods).await;
    office.partition("Pod", "notebook", &uid, waiting()).await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    let parts = [
        "Pod default/notebook: Pending",
        "Requests 4 IPUs.",
        "position 1 of 1 in the queue",
        "Pod notebook: PartitionLost: it is gone",
    ];
    let why = ["why", "pod/notebook"];
    let page = office.printed("root", &why, &parts).await;
    assert!(!page.contains("Not shown:"), "{page}");

    // kubectl finds the plugin on PATH, and the plugin finds the kubeconfig in the environment.
    let folder = office.plugin.parent().unwrap().display();
    let version = format!("PATH=\"{folder}:$PATH\" kubectl ipu version");
    let version = office.admin.shell(&version).unwrap();
    assert!(version.contains("ipu-operator: not found"), "{version}");

    let watch = office.command(&office.kubeconfig("root"), &["top", "--watch"]);
    let mut watch = tokio::process::Command::from(watch);
    let mut watch = watch
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let row = |used: u32, free: u32, waiting: u32| format!("total 64 {used} 0 {free} {waiting}");
    let mut shown = async |expected: String| {
        while let Some(line) = lines.next_line().await.unwrap() {
            let words: Vec<_> = line.split_whitespace().collect();
            if words.join(" ") == expected {
                return;
            }
        }
        panic!("the plugin ended before it showed {expected}");
    };
    shown(row(0, 64, 4)).await;
    office.change("default.notebook-0", ready("p-1")).await;
    shown(row(4, 60, 0)).await;
    let pid = i32::try_from(watch.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    assert!(watch.wait().await.unwrap().success());
    watch::follow_a_pod(&office, &pods).await;
}
