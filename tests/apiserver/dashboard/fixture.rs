//! A cluster with IPUs in each state, and the dashboard of a user.

use std::fs;
use std::process::{self, Stdio};

use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::ipupolicy::IPUPolicy;
use ipu_api::vipu_controller::VIPUController;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::running::run;
use crate::kubectl_ipu::Office;

/// A running dashboard.
pub(crate) struct Dashboard {
    page: String,
    process: Child,
}

impl Dashboard {
    /// Starts the dashboard of a user, and waits until it prints its address.
    pub(crate) async fn start(office: &Office, user: &str, options: &[&str]) -> Self {
        let kubeconfig = office.kubeconfig(user);
        let mut arguments = vec!["dashboard"];
        arguments.extend(options);
        Self::of(office.command(&kubeconfig, &arguments)).await
    }

    /// Starts the dashboard with this command.
    pub(crate) async fn of(command: process::Command) -> Self {
        let mut command = Command::from(command);
        let command = command.stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let page = first.strip_prefix("The dashboard is at ").unwrap();
        Self {
            page: page.to_owned(),
            process,
        }
    }

    /// The peak memory of its process, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let id = self.process.id().unwrap();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let mut lines = status.lines();
        let peak = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// URL of the page, as the command prints it.
    pub(crate) fn page(&self) -> &str {
        &self.page
    }

    /// A URL behind the secret path.
    pub(crate) fn url(&self, path: &str) -> String {
        let (page, _) = self
            .page
            .split_once('?')
            .unwrap_or((self.page.as_str(), ""));
        format!("{page}{path}")
    }
}

/// Creates an object with its status.
pub(super) async fn create<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
    mut object: Value,
) -> DynamicObject {
    let kind = ApiResource::erase::<K>(&());
    object["apiVersion"] = json!(kind.api_version);
    object["kind"] = json!(kind.kind);
    let status = object.as_object_mut().unwrap().remove("status");
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let created = api.create(&PostParams::default(), &object).await.unwrap();
    if let Some(status) = status {
        let (params, patch) = (
            PatchParams::default(),
            Patch::Merge(json!({"status": status})),
        );
        let name = created.name_any();
        api.patch_status(&name, &params, &patch).await.unwrap();
    }
    created
}

fn reference(name: &str) -> Value {
    json!({
        "name": format!("{name}:8090"), "host": name, "port": 8090, "labelKey": "ipunode",
        "labelValue": name,
    })
}

/// A partition of an IPUJob on the first V-IPU controller, from this IPU on.
async fn placed(client: &Client, owner: &str, (first, ipus, phase): (u32, u32, &str)) {
    let mut status = on("pod1", owner, phase);
    status["firstIpu"] = json!(first);
    partition(client, (owner, owner), ipus, status).await;
}

/// A node that reaches a V-IPU controller.
async fn node(client: &Client, name: &str, controller: &str, ready: &str) {
    let object = json!({
        "metadata": {"name": name, "labels": {"ipunode": controller}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    });
    create::<Node>(client, None, object).await;
}

/// The status of a partition on a V-IPU controller.
pub(super) fn on(controller: &str, owner: &str, phase: &str) -> Value {
    let id = format!("p-{}", owner.replace('/', "-"));
    let attempt = json!({"controller": reference(controller), "id": id, "outcome": "created"});
    json!({
        "phase": phase, "controller": reference(controller), "partitionId": id,
        "attempts": [attempt],
    })
}

/// A partition of an IPUJob.
pub(super) async fn partition(
    client: &Client,
    (owner, uid): (&str, &str),
    ipus: u32,
    status: Value,
) {
    let (namespace, name) = owner.split_once('/').unwrap();
    let object = json!({
        "metadata": {"name": format!("{namespace}.{name}-0")},
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": namespace,
                "name": name, "uid": uid,
            },
            "slot": 0, "ipus": ipus, "gcds": 1,
        },
        "status": status,
    });
    create::<IPUPartition>(client, None, object).await;
}

/// A V-IPU controller with these numbers: its IPUs, used IPUs, IPUs that others use, and the
/// largest free partition.
pub(super) fn controller(name: &str, [total, used, others, largest]: [u32; 4]) -> Value {
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Answers", "message": "",
        "lastTransitionTime": Timestamp::now() - SignedDuration::from_hours(5),
    });
    json!({
        "metadata": {"name": format!("{name}-8090")},
        "spec": {},
        "status": {
            "address": format!("{name}:8090"), "summary": "Ready", "labelKey": "ipunode",
            "labelValue": name, "nodes": 1, "serverVersion": "1.18.0",
            "ipus": {
                "total": total, "used": used, "usedByOthers": others, "largestFree": largest,
            },
            "conditions": [condition],
        },
    })
}

/// IPU-seconds of the last hours of a V-IPU controller with 64 IPUs.
fn accounting() -> Value {
    let now = Timestamp::now();
    let start = Timestamp::from_second(now.as_second() / 3_600 * 3_600).unwrap();
    let hour = |ago: i64| {
        let start = start - SignedDuration::from_hours(ago);
        let used = |namespace: &str, running: i64| {
            json!({
                "namespace": namespace, "forming": 600.0, "waitingPods": 1_200.0,
                "running": running, "resetting": 300.0, "idleAllocated": 2_400.0,
                "releasing": 60.0,
            })
        };
        json!({
            "start": start,
            "unallocated": {
                "free": 40_000.0, "stranded": 9_000.0, "unhealthy": 1_000.0, "others": 14_400.0,
                "unknown": 30.0,
            },
            "namespaces": [used("team-a", 90_000 + 1_000 * ago), used("team-b", 20_000)],
        })
    };
    let hours: Vec<_> = (0..24).rev().map(hour).collect();
    json!({
        "address": "pod1:8090", "ipus": 64, "since": hours[0]["start"], "until": now,
        "total": hours[0], "hours": hours,
    })
}

/// Partitions in each state on the first V-IPU controller, at their places, and one on the second,
/// whose place is not known. Nodes reach both.
async fn allocate(client: &Client) {
    for (owner, first, ipus, phase) in [
        ("team-a/serve", 16, 4, "Ready"),
        ("team-a/forms", 24, 8, "Creating"),
        ("team-b/resets", 20, 4, "Resetting"),
        ("team-b/leaves", 34, 2, "Releasing"),
        ("team-b/broken", 32, 2, "Error"),
    ] {
        placed(client, owner, (first, ipus, phase)).await;
    }
    let unplaced = on("pod2", "team-b/eval", "Ready");
    partition(client, ("team-b/eval", "team-b/eval"), 32, unplaced).await;
    for (name, controller, ready) in [("node1", "pod1", "True"), ("node2", "pod2", "False")] {
        node(client, name, controller, ready).await;
    }
}

/// IPUs in each state: used by partitions, used by others, free but of no use to a request, and on
/// a V-IPU controller that is cordoned and does not answer. Also two waiting requests, and a policy
/// in shadow.
pub(crate) async fn fill(client: &Client) {
    for name in ["team-a", "team-b"] {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let params = PostParams::default();
        namespaces.create(&params, &namespace).await.unwrap();
    }
    run(client).await;
    allocate(client).await;
    let full = "48 of its 64 IPUs are used, and the largest free partition is 16, smaller than the 64 requested";
    let waiting = json!({"phase": "Pending", "waiting": [
        {"controller": "pod1:8090", "reason": full},
        {"controller": "pod2:8090", "reason": "its largest free partition is 32, smaller than the 64 requested"},
    ]});
    for owner in ["team-a/large", "team-b/late"] {
        partition(client, (owner, owner), 64, waiting.clone()).await;
    }
    let mut first = controller("pod1", [64, 44, 8, 16]);
    first["status"]["freeIpus"] = json!("36-39,48-63");
    first["status"]["reservedFor"] = json!("team-a/large (64 IPUs), which has waited since noon");
    let mut unready = controller("pod3", [64, 0, 0, 64]);
    unready["spec"] = json!({
        "cordoned": true, "requestedBy": "admin", "reason": "replaced on Friday",
    });
    unready["status"]["summary"] = json!("NotReady,Cordoned");
    unready["status"]["conditions"][0]["status"] = json!("False");
    for object in [first, controller("pod2", [64, 32, 0, 32]), unready] {
        create::<VIPUController>(client, None, object).await;
    }
    let record = json!({"metadata": {"name": "pod1-8090"}, "spec": accounting()});
    create::<IPUAccounting>(client, None, record).await;
    let policy = json!({
        "metadata": {"name": "best-fit"},
        "spec": {
            "hook": "Placement", "mode": "Shadow",
            "module": {
                "configMap": {"name": "modules", "key": "best-fit.wasm"},
                "digest": "sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
            },
        },
        "status": {
            "phase": "Shadow", "message": "compared with the built-in guest", "observedGeneration": 1,
            "activeDigest": "sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
            "calls": {"answered": 120, "failed": 1},
            "shadow": {"equal": 117, "different": 2, "failed": 1, "skipped": 0},
        },
    });
    create::<IPUPolicy>(client, None, policy).await;
}
