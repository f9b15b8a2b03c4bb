//! `kubectl ipu why --watch`: it ends with its object, or with the rights of its user.

use std::process::{Output, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{FULL, Office, ready, waiting};

/// A watch that continues, and the output that was read of it.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    text: String,
}

impl Watch {
    fn start(office: &Office, kubeconfig: &str, arguments: &[&str]) -> Self {
        let mut command = Command::from(office.command(kubeconfig, arguments));
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            text: String::new(),
        }
    }

    /// Returns the next line. `None`: the watch has ended.
    async fn next_line(&mut self) -> Option<String> {
        let line = self.lines.next_line().await.unwrap()?;
        self.text += &line;
        self.text.push('\n');
        Some(line)
    }

    /// Reads lines until one contains this.
    async fn shows(&mut self, expected: &str) {
        while let Some(line) = self.next_line().await {
            if line.contains(expected) {
                return;
            }
        }
        panic!(
            "the plugin ended before it showed {expected}: {}",
            self.text
        );
    }

    /// Waits until it ends. Returns all that it has printed, its status, and its errors.
    async fn end(mut self) -> (String, Output) {
        while self.next_line().await.is_some() {}
        let output = self.child.wait_with_output().await.unwrap();
        (self.text, output)
    }
}

/// The page of a Pod follows its partition, and ends with the Pod.
pub(super) async fn follow_a_pod(office: &Office, pods: &Api<Pod>) {
    let arguments = ["why", "pod/notebook", "--watch"];
    let mut why = Watch::start(office, &office.kubeconfig("root"), &arguments);
    why.shows("default.notebook-0 (slot 0, 4 IPUs): Ready")
        .await;
    office
        .change("default.notebook-0", json!({"phase": "Error"}))
        .await;
    why.shows("default.notebook-0 (slot 0, 4 IPUs): Error")
        .await;
    let gone = pods.delete("notebook", &DeleteParams::default()).await;
    gone.unwrap();
    let (_, output) = why.end().await;
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "the Pod notebook is gone\n");
}

#[tokio::test]
async fn the_page_of_a_job_follows_its_partition_and_ends_with_the_job_in_each_form() {
    let office = Office::new().await;
    let uid = office.waiting_job().await;
    office.partition("IPUJob", "train", &uid, waiting()).await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    let why = ["why", "train"];
    office.printed("root", &why, &["position 1 of 1"]).await;

    let kubeconfig = office.kubeconfig("root");
    let mut text = Watch::start(&office, &kubeconfig, &["why", "train", "--watch"]);
    let in_json = ["why", "train", "--watch", "-o", "json"];
    let mut documents = Watch::start(&office, &kubeconfig, &in_json);
    text.shows("IPUJob default/train: Pending").await;
    documents.shows(FULL).await;
    office.change("default.train-0", ready("p-1")).await;
    text.shows("default.train-0 (slot 0, 4 IPUs): Ready").await;
    office
        .report_job(&json!({"status": {
            "launcherStatus": "Completed", "lastMessage": "all workers have succeeded",
            "completionTime": "2026-01-01T01:00:00Z",
        }}))
        .await;

    let (text, output) = text.end().await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let (_, last) = text.rsplit_once("IPUJob default/train: ").unwrap();
    assert!(last.starts_with("Completed"), "{text}");

    let (text, output) = documents.end().await;
    assert!(output.status.success(), "{output:?}");
    let read = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let pages: Vec<Value> = read.collect::<Result<_, _>>().unwrap();
    assert!(pages.len() > 1, "{text}");
    for page in &pages {
        assert_eq!(page["object"], "IPUJob default/train");
    }
    assert_eq!(pages[0]["state"], "Pending");
    assert_eq!(pages[pages.len() - 1]["state"], "Completed");
}

#[tokio::test]
async fn the_page_ends_with_the_rights_of_its_user_and_the_error_names_the_right() {
    let office = Office::new().await;
    office.waiting_job().await;
    // In one namespace, so that the watch of the job is the only one that can end.
    office.grant("rolebinding", "ipu-operator-view", "alice");
    let pending = "IPUJob default/train: Pending";
    office.printed("alice", &["why", "train"], &[pending]).await;
    let arguments = ["why", "train", "--watch"];
    let mut why = Watch::start(&office, &office.kubeconfig("alice"), &arguments);
    why.shows(pending).await;

    let revoke = ["delete", "rolebinding", "alice"];
    office.admin.kubectl(&revoke).unwrap();
    let (_, output) = why.end().await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    for part in [
        "failed to watch the IPUJob",
        "User \"alice\" cannot watch resource \"ipujobs\"",
    ] {
        assert!(said.contains(part), "{said}");
    }
}
