//! Cordon, drain and goodput, with VIPUControllers as the operator leaves them.

use std::process::Stdio;

use cluster::wait::eventually;
use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::vipu_controller::VIPUController;
use jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use super::{Office, ready, waiting};

/// A time for the conditions. The tests do not check ages.
const SINCE: &str = "2026-01-01T00:00:00Z";

impl Office {
    fn controllers(&self) -> Api<VIPUController> {
        Api::all(self.client.clone())
    }

    /// A V-IPU controller that answers, with this number of free IPUs.
    async fn controller(&self, host: &str, largest_free: u32, accounting: Value) {
        let name = format!("{host}-8090");
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "VIPUController",
            "metadata": {"name": name},
            "spec": {},
        });
        let object = serde_json::from_value(object).unwrap();
        let params = PostParams::default();
        self.controllers().create(&params, &object).await.unwrap();
        let condition = |type_: &str| {
            json!({
                "type": type_, "status": "True", "reason": "Seen", "message": "",
                "lastTransitionTime": SINCE,
            })
        };
        let status = json!({
            "address": format!("{host}:8090"),
            "summary": "Ready",
            "ipus": {"total": 16, "used": 8, "usedByOthers": 4, "largestFree": largest_free},
            "partitions": 1,
            "conditions": [condition("Ready"), condition("Listed")],
        });
        self.report(&name, status).await;
        if accounting.is_object() {
            let object = json!({
                "apiVersion": "graphcore.ai/v1alpha1",
                "kind": "IPUAccounting",
                "metadata": {"name": name},
                "spec": accounting,
            });
            let object = serde_json::from_value(object).unwrap();
            let accountings: Api<IPUAccounting> = Api::all(self.client.clone());
            accountings.create(&params, &object).await.unwrap();
        }
    }

    /// The operator reports this in the status of a V-IPU controller.
    async fn report(&self, name: &str, status: Value) {
        let (params, patch) = (
            PatchParams::default(),
            Patch::Merge(json!({"status": status})),
        );
        let controllers = self.controllers();
        let patched = controllers.patch_status(name, &params, &patch).await;
        patched.unwrap();
    }

    /// Waits until a command of a user fails with all of this. The API server follows new rights
    /// with a short delay.
    async fn refused_with(&self, user: &str, arguments: &[&str], parts: &[&str]) {
        let what = format!("{user}: {arguments:?} is refused with {parts:?}");
        eventually(&what, async || {
            let error = self.refused(user, arguments);
            let is_complete = parts.iter().all(|part| error.contains(part));
            if is_complete { Ok(()) } else { Err(error) }
        })
        .await;
    }

    /// A drain that continues, and its lines about progress.
    fn drain(&self, arguments: &[&str]) -> (Child, BufReader<ChildStderr>) {
        let drain = self.command(&self.kubeconfig("root"), arguments);
        let mut drain = Command::from(drain);
        let mut drain = drain
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let progress = BufReader::new(drain.stderr.take().unwrap());
        (drain, progress)
    }
}

/// Reads lines until one contains this.
async fn shown(progress: &mut BufReader<ChildStderr>, part: &str) {
    let mut all = String::new();
    while !all.contains(part) {
        let read = progress.read_line(&mut all).await.unwrap();
        assert!(read > 0, "the plugin ended before it showed {part}: {all}");
    }
}

#[tokio::test]
async fn an_admin_cordons_and_uncordons_a_controller_by_name_and_by_address() {
    let office = Office::new().await;
    office.controller("pod1", 4, Value::Null).await;
    let cordon = ["cordon", "pod1:8090", "--reason", "new firmware"];
    let grant = "kubectl create clusterrole vipu-operate";
    let refusal = ["you may not get vipucontrollers.graphcore.ai: ", grant];
    office.refused_with("bob", &cordon, &refusal).await;
    office.grant("clusterrolebinding", "ipu-operator-view", "alice");
    let refusal = ["you may not patch vipucontrollers.graphcore.ai: ", grant];
    office.refused_with("alice", &cordon, &refusal).await;

    office.grant("clusterrolebinding", "cluster-admin", "root");
    let line = |state: &str| format!("vipucontroller.graphcore.ai/pod1-8090 {state}\n");
    let cordoned = office.printed("root", &cordon, &["cordoned"]).await;
    assert_eq!(cordoned, line("cordoned"));
    let controller = office.controllers().get("pod1-8090").await.unwrap();
    assert!(controller.spec.cordoned && !controller.spec.draining);
    assert_eq!(controller.spec.requested_by.as_deref(), Some("root"));
    assert_eq!(controller.spec.reason.as_deref(), Some("new firmware"));
    let managers = controller.metadata.managed_fields.iter().flatten();
    let mut managers = managers.filter_map(|one| one.manager.as_deref());
    assert!(managers.any(|manager| manager == "kubectl-ipu"));
    let again = office.printed("root", &cordon, &["cordoned"]).await;
    assert_eq!(again, line("already cordoned"));

    let uncordon = ["uncordon", "pod1-8090"];
    let opened = office.printed("root", &uncordon, &["uncordoned"]).await;
    assert_eq!(opened, line("uncordoned"));
    let controller = office.controllers().get("pod1-8090").await.unwrap();
    assert_eq!(controller.spec, Default::default());

    // If one of them is missing, none is changed.
    let both = ["cordon", "pod1-8090", "pod9:8090"];
    let missing = office.refused("root", &both);
    let expected = "there is no VIPUController pod9-8090";
    assert!(missing.contains(expected), "{missing}");
    let controller = office.controllers().get("pod1-8090").await.unwrap();
    assert!(!controller.spec.cordoned);
}

#[tokio::test]
async fn a_drain_shows_who_is_still_there_and_can_be_interrupted() {
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    office.controller("pod1", 4, Value::Null).await;
    office
        .partition("IPUJob", "train", "uid-train", ready("p-1"))
        .await;
    let line = "vipucontroller.graphcore.ai/pod1-8090 draining\n";
    let unwaited = ["drain", "pod1:8090", "--wait=false"];
    let printed = office.printed("root", &unwaited, &["draining"]).await;
    assert_eq!(printed, line);
    let controller = office.controllers().get("pod1-8090").await.unwrap();
    assert!(controller.spec.cordoned && controller.spec.draining);

    let late = ["drain", "pod1:8090", "--timeout=1s"];
    let late = office.refused("root", &late);
    let expected = "--timeout is over, and pod1-8090 still has partitions";
    assert!(late.contains(expected), "{late}");

    let there = "pod1:8090: default/train (IPUJob, 4 IPUs): Ready";
    let (mut drain, mut progress) = office.drain(&["drain", "pod1:8090"]);
    shown(&mut progress, there).await;
    let pid = i32::try_from(drain.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    shown(&mut progress, "kubectl ipu uncordon pod1-8090 ends that").await;
    assert_eq!(drain.wait().await.unwrap().code(), Some(130));
    let controller = office.controllers().get("pod1-8090").await.unwrap();
    assert!(controller.spec.draining);

    let (mut drain, mut progress) = office.drain(&["drain", "pod1:8090"]);
    shown(&mut progress, there).await;
    let partitions = office.partitions();
    let params = DeleteParams::default();
    let deleted = partitions.delete("default.train-0", &params).await;
    deleted.unwrap();
    shown(&mut progress, "(IPUJob, 4 IPUs): gone, 0 left").await;
    let drained = json!({
        "type": "Drained", "status": "True", "reason": "Empty", "message": "",
        "observedGeneration": controller.metadata.generation, "lastTransitionTime": SINCE,
    });
    let status = json!({"partitions": 0, "conditions": [drained]});
    office.report("pod1-8090", status).await;
    assert!(drain.wait().await.unwrap().success());
    let mut printed = String::new();
    let mut out = drain.stdout.take().unwrap();
    out.read_to_string(&mut printed).await.unwrap();
    let name = "vipucontroller.graphcore.ai/pod1-8090";
    assert_eq!(
        printed,
        format!("{name} already draining\n{name} drained\n")
    );
}

#[tokio::test]
async fn the_plugin_shows_what_fits_and_where_ipu_hours_went() {
    let office = Office::new().await;
    let now = Timestamp::now();
    let hour = now.as_second() - now.as_second() % 3_600;
    let start = Timestamp::from_second(hour).unwrap().to_string();
    let period = json!({
        "start": start,
        "unallocated": {
            "free": 3_600.0, "stranded": 0.0, "unhealthy": 0.0, "others": 0.0, "unknown": 0.0,
        },
        "namespaces": [{
            "namespace": "team-a", "forming": 0.0, "waitingPods": 1_800.0, "running": 5_400.0,
            "resetting": 0.0, "idleAllocated": 0.0, "releasing": 0.0,
        }],
    });
    let accounting = json!({
        "address": "pod1:8090", "since": start, "until": now.to_string(), "total": period, "hours": [period], "days": [period],
    });
    office.controller("pod1", 2, accounting).await;
    office.controller("pod2", 16, Value::Null).await;
    let uid = office.waiting_job().await;
    office.partition("IPUJob", "train", &uid, waiting()).await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    let cordon = ["cordon", "pod2:8090", "--reason=new firmware"];
    office.printed("root", &cordon, &["cordoned"]).await;

    let refusal = ["goodput sums up", "ipu-operator-view"];
    office.refused_with("bob", &["goodput"], &refusal).await;
    office.grant("clusterrolebinding", "ipu-operator-view", "alice");
    let parts = [
        "NAMESPACE",
        "\nteam-a ",
        "75.0%",
        "pod2:8090 has no accounting yet",
    ];
    office.printed("alice", &["goodput"], &parts).await;
    let report = office
        .printed("alice", &["goodput", "--since=7d", "-o=json"], &["{"])
        .await;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["total"]["running"], 1.5);
    assert_eq!(report["total"]["goodput"], 0.75);
    let lines = office
        .printed("alice", &["goodput", "--output=csv"], &["running"])
        .await;
    let running = format!("{start},hour,pod1:8090,team-a,running,5400.000\n");
    assert!(lines.contains(&running), "{lines}");
    goodput_exports_jobs(&office).await;

    let parts = [
        "V-IPU controllers:\n  pod2:8090 is cordoned by root: new firmware\n",
        "  largest fit now: 2 IPUs on pod1:8090\n",
        "what would fit now: 2 IPUs instead of 4",
    ];
    office.printed("alice", &["why", "train"], &parts).await;
    let parts = ["CONTROLLER", "LARGEST-FREE", "\npod2:8090 "];
    let top = office.printed("alice", &["top"], &parts).await;
    assert!(!top.contains("you may not list"), "{top}");
}

/// Alice may list the jobs of the cluster, and bob may not.
async fn goodput_exports_jobs(office: &Office) {
    let refusal = ["goodput --jobs lists", "name your namespace"];
    office
        .refused_with("bob", &["goodput", "--jobs"], &refusal)
        .await;
    let jobs = ["goodput", "--jobs", "--since=all"];
    office
        .printed("alice", &jobs, &["namespace,arrival_seconds,"])
        .await;
}
