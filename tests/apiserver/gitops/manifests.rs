//! The objects for kubectl, with the commands of their page: the API server takes them, the
//! operator has all rights, a second apply changes nothing that others have written, and the
//! removal keeps CRDs and jobs.

use std::fs;
use std::path::{Path, PathBuf};

use release::guests::checkout;
use release::package::manifests::{self, render};
use serde_json::Value;
use tests::documents::WITHOUT_HELM;

use super::{NAME, create_job, documents, has_job, left, operate, owned, webhooks};
use crate::chart::admin::Admin;
use crate::planes;

/// The label of all objects of the chart.
const PART_OF: &str = "app.kubernetes.io/part-of";

fn rendered(admin: &Admin) -> String {
    let objects = render(admin.program("helm"), Path::new(admin.chart())).unwrap();
    String::from_utf8(objects).unwrap()
}

/// The commands of the page.
fn commands() -> Vec<String> {
    let page = checkout().join(format!("{}.md", WITHOUT_HELM.document));
    let text = fs::read_to_string(page).unwrap();
    let blocks = WITHOUT_HELM.blocks(&text).into_iter();
    blocks.map(|block| block.commands.to_owned()).collect()
}

#[test]
fn the_file_has_the_crds_and_the_objects_of_the_chart_and_needs_nothing_of_helm() {
    let admin = Admin::of(NAME, PathBuf::new());
    let objects = documents(&rendered(&admin));
    assert_eq!(objects[0]["kind"], "Namespace");
    let is_crd = |object: &&Value| object["kind"] == "CustomResourceDefinition";
    assert_eq!(objects.iter().filter(is_crd).count(), 5);
    let others: Vec<_> = objects[1..]
        .iter()
        .filter(|object| !is_crd(object))
        .collect();
    assert!(others.len() > 20, "{} objects", others.len());
    for object in others {
        let metadata = &object["metadata"];
        assert_ne!(object["kind"], "Secret", "{metadata}");
        assert_eq!(metadata["labels"][PART_OF], NAME, "{metadata}");
        let hook = &metadata["annotations"]["helm.sh/hook"];
        assert_eq!(*hook, Value::Null, "{metadata}");
    }
}

#[tokio::test]
async fn kubectl_installs_upgrades_and_removes_the_operator_without_helm() {
    let plane = planes::empty().await;
    let admin = Admin::of(NAME, plane.kubeconfig());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(manifests::NAME), rendered(&admin)).unwrap();
    let commands = commands();
    let [apply, list, older, remove] = &commands[..] else {
        panic!("the page has these commands: {commands:?}");
    };
    let run = |commands: &str| {
        let script = format!("cd '{}'\n{commands}", folder.path().display());
        let ran = admin.shell(&script);
        ran.unwrap_or_else(|error| panic!("{commands}: {error}"))
    };
    run(apply);
    run(list);
    let process = operate(&admin).await;
    owned(&admin, true).await;
    create_job(&admin);

    let versions = webhooks(&admin, "{.metadata.resourceVersion}");
    run(apply);
    assert_eq!(webhooks(&admin, "{.metadata.resourceVersion}"), versions);
    let get = ["get", "configmap", "ipu-operator-vipu-controllers"];
    let kept = [&get[..], &["--namespace", NAME, "--output=json"]].concat();
    let kept = admin.kubectl(&kept).unwrap();
    assert!(kept.contains("ipunode=pod1"), "{kept}");
    assert_eq!(run(older), "");

    process.abort();
    run(remove);
    assert_eq!(left(&admin), "");
    has_job(&admin);
}
