//! The commands in the chart's documents do on a real API server what the documents say.

use std::fs;

use tests::lab::control_plane::ControlPlane;

use super::JOB;
use super::admin::Admin;

/// What the documents call release, namespace and fullname.
const NAME: &str = "ipu-operator";

/// The blocks of a document that need nothing but an API server, in their order.
fn blocks(admin: &Admin, document: &str) -> Vec<String> {
    let path = format!("{}/docs/{document}.md", admin.chart());
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut parts = text.split("```sh\n").skip(1);
    let mut found = Vec::new();
    for part in &mut parts {
        let (block, _) = part.split_once("```").expect("a block has an end");
        found.push(block.to_owned());
    }
    assert!(!found.is_empty(), "{document} has no commands");
    found
}

pub(super) fn run(admin: &Admin, document: &str) {
    for block in blocks(admin, document) {
        let ran = admin.shell(&block);
        ran.unwrap_or_else(|error| panic!("{document}.md: {block}\n{error}"));
    }
}

/// What is left of the operator outside namespaces.
fn left(admin: &Admin) -> String {
    let kinds = "clusterroles,clusterrolebindings,flowschemas,prioritylevelconfigurations,\
                 mutatingwebhookconfigurations,validatingwebhookconfigurations,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let ours = "--selector=app.kubernetes.io/part-of=ipu-operator";
    let listed = admin
        .kubectl(&["get", kinds, ours, "--output=name"])
        .unwrap();
    let definitions = ["get", "customresourcedefinitions", "--output=name"];
    listed + &admin.kubectl(&definitions).unwrap()
}

#[tokio::test]
async fn from_install_to_uninstall_with_jobs_left_and_no_operator() {
    let control_plane = ControlPlane::start().await.unwrap();
    let admin = Admin::of(NAME, control_plane.kubeconfig());
    for document in ["install", "security", "debugging", "runbook", "upgrade"] {
        run(&admin, document);
    }
    // The restricted namespace's users may make jobs, which the role that was bound says.
    let asked = ["auth", "can-i", "create", "ipujobs", "--namespace=team-b"];
    let as_member = ["--as=alice", "--as-group=team-b"];
    let can = admin.kubectl(&[&asked[..], &as_member].concat()).unwrap();
    assert_eq!(can.trim(), "yes");

    // A job and its partition, as an operator leaves them that is killed.
    let operator = admin.account("controller-manager");
    let file = admin.file("left.yaml", &format!("{JOB}---{PARTITION}"));
    let create = ["create", "--filename", &file, &operator];
    admin
        .kubectl(&[&create[..], &["--as-group=system:masters"]].concat())
        .unwrap();
    run(&admin, "uninstall");
    assert_eq!(left(&admin), "");
}

#[tokio::test]
async fn what_is_left_when_the_namespace_went_first_goes_too() {
    let control_plane = ControlPlane::start().await.unwrap();
    let admin = Admin::of(NAME, control_plane.kubeconfig());
    run(&admin, "install");
    let secrets = ["delete", "secrets", "--all", "--namespace", NAME];
    admin.kubectl(&secrets).unwrap();
    let file = admin.file("left.yaml", &format!("{JOB}---{PARTITION}"));
    let operator = admin.account("controller-manager");
    let create = ["create", "--filename", &file, &operator];
    admin
        .kubectl(&[&create[..], &["--as-group=system:masters"]].concat())
        .unwrap();
    admin
        .kubectl(&["delete", "namespace", NAME, "--wait=false"])
        .unwrap();
    assert!(left(&admin).contains("clusterrole"), "{}", left(&admin));
    run(&admin, "uninstall");
    assert_eq!(left(&admin), "");
}

/// The partition of the job of `JOB`.
const PARTITION: &str = "
apiVersion: graphcore.ai/v1alpha1
kind: IPUPartition
metadata: { name: partition, finalizers: [ipu.finalizers.graphcore.ai] }
spec:
  owner: { apiVersion: graphcore.ai/v1alpha1, kind: IPUJob, namespace: default, name: job, uid: '1' }
  slot: 0
  ipus: 1
  gcds: 1
";
