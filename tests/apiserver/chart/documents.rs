//! Runs the commands of the chart's documents on a real API server.

use std::fs;

use cluster::definitions;
use tests::documents::{ADMINS_ON_API_SERVER, Typed, UNINSTALL_ON_API_SERVER, USERS_ON_API_SERVER};

use super::JOB;
use super::admin::Admin;
use crate::planes;

/// Release, namespace and fullname in the documents.
const NAME: &str = "ipu-operator";

/// The commands of a document that the tests run, in order.
fn blocks(admin: &Admin, typed: &Typed) -> Vec<String> {
    let path = format!("{}/../../{}.md", admin.chart(), typed.document);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let blocks = typed.blocks(&text).into_iter();
    blocks
        .map(|block| format!("{}\n", block.commands))
        .collect()
}

/// Runs the blocks of a document.
pub(super) fn run(admin: &Admin, typed: &Typed) {
    let blocks = blocks(admin, typed);
    assert!(!blocks.is_empty(), "{} has no commands", typed.document);
    for block in blocks {
        let ran = admin.shell(&block);
        ran.unwrap_or_else(|error| panic!("{}.md: {block}\n{error}", typed.document));
    }
}

/// Returns the cluster-scoped objects of the operator that remain.
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
    let control_plane = planes::empty().await;
    let admin = Admin::of(NAME, control_plane.kubeconfig());
    for document in &ADMINS_ON_API_SERVER {
        run(&admin, document);
    }
    // Users of the restricted namespace can create jobs, which shows that the role is bound.
    let asked = ["auth", "can-i", "create", "ipujobs", "--namespace=team-b"];
    let as_member = ["--as=alice", "--as-group=team-b"];
    let can = admin.kubectl(&[&asked[..], &as_member].concat()).unwrap();
    assert_eq!(can.trim(), "yes");

    // A job and its partition in the state that a killed operator leaves.
    let operator = admin.account("controller-manager");
    let file = admin.file("left.yaml", &format!("{JOB}---{PARTITION}"));
    let create = ["create", "--filename", &file, &operator];
    admin
        .kubectl(&[&create[..], &["--as-group=system:masters"]].concat())
        .unwrap();
    for document in &UNINSTALL_ON_API_SERVER {
        run(&admin, document);
    }
    assert_eq!(left(&admin), "");
}

#[tokio::test]
async fn the_remains_of_a_deleted_namespace_are_removed_too() {
    let control_plane = planes::empty().await;
    let admin = Admin::of(NAME, control_plane.kubeconfig());
    let [install, ..] = &ADMINS_ON_API_SERVER;
    run(&admin, install);
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
    for document in &UNINSTALL_ON_API_SERVER {
        run(&admin, document);
    }
    assert_eq!(left(&admin), "");
}

/// There are no webhooks here: the documents for users describe the API server's own behaviour.
#[tokio::test]
async fn the_commands_for_users_are_accepted() {
    let control_plane = planes::empty().await;
    let admin = Admin::of(NAME, control_plane.kubeconfig());
    let definitions = format!("{}/crds", admin.chart());
    let create = ["create", "--filename", &definitions];
    admin.kubectl(&create).unwrap();
    let client = control_plane.client().await.unwrap();
    definitions::once_served(&client).await;
    let mut checked = 0;
    for typed in &USERS_ON_API_SERVER {
        run(&admin, typed);
        let document = typed.document;
        let marks = &["yaml"];
        for manifest in blocks(&admin, &Typed { document, marks }) {
            let file = admin.file("block.yaml", &manifest);
            let apply = ["apply", "--dry-run=server", "--validate=strict"];
            let taken = admin.kubectl(&[&apply, &["--filename", &file][..]].concat());
            taken.unwrap_or_else(|error| panic!("{document}.md: {manifest}\n{error}"));
            checked += 1;
        }
    }
    assert!(checked > 3, "{checked} manifests");
}

/// The partition of the job in `JOB`.
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
