//! Both ways in which Helm installs the CRDs: once, from the folder `crds`, or with every upgrade,
//! as a part of the release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command;
use cluster::wait::{Seen, eventually};
use serde_json::Value;

use super::admin::{Admin, KUBERNETES};
use crate::planes;

/// The name of an older CRD of jobs in the older chart.
pub(crate) const OLD_SHORT_NAME: &str = "old";

#[test]
fn the_crds_of_the_release_are_those_of_the_folder() {
    let admin = Admin::of("ipu-operator", PathBuf::new());
    let template = [
        "template",
        admin.name,
        admin.chart(),
        KUBERNETES,
        "--set=crds.install=true",
        "--show-only=templates/custom-resource-definitions.yaml",
    ];
    let rendered = admin.helm(&template).unwrap();
    let mut rendered: Vec<Value> = rendered.split("\n---\n").map(parsed).collect();
    let mut files: Vec<_> = fs::read_dir(Path::new(admin.chart()).join("crds"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(rendered.len(), files.len());
    for (made, file) in rendered.iter_mut().zip(files) {
        let original = parsed(&fs::read_to_string(&file).unwrap());
        made["metadata"] = original["metadata"].clone();
        assert_eq!(*made, original, "{}", file.display());
    }
}

/// Helm writes a whole number without the fraction that the files contain.
fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(&text.replace(".0\n", "\n")).unwrap()
}

#[tokio::test]
async fn helm_4_upgrades_the_crds_of_the_release_and_keeps_them() {
    let plane = planes::own().await;
    let mut admin = Admin::of("ipu-operator", plane.kubeconfig());
    admin.helm = "helm-4";
    let folder = tempfile::tempdir().unwrap();
    let older = older_chart(&admin, folder.path());
    let managed = [
        "--create-namespace",
        "--skip-crds",
        "--set=crds.install=true",
    ];

    let install = ["install", admin.name, &older];
    admin.helm(&[&install[..], &managed].concat()).unwrap();
    assert_eq!(short_name(&admin), OLD_SHORT_NAME);
    let upgrade = [
        "upgrade",
        admin.name,
        admin.chart(),
        "--reset-then-reuse-values",
    ];
    admin.helm(&upgrade).unwrap();
    assert_eq!(short_name(&admin), "ipj");

    // Objects that remain after the release belong to the next release of the same name.
    admin.helm(&["uninstall", admin.name]).unwrap();
    assert_eq!(short_name(&admin), "ipj");
    let again = ["install", admin.name, admin.chart()];
    admin.helm(&[&again[..], &managed].concat()).unwrap();
    admin.helm(&["uninstall", admin.name]).unwrap();
    another_release_takes_them_over(&admin, &managed).await;
}

/// CRDs that one release has left change their release only on an explicit request of an admin.
async fn another_release_takes_them_over(admin: &Admin, managed: &[&str]) {
    let other = ["install", "other", admin.chart()];
    let other = [&other[..], managed].concat();
    let refused = admin.helm(&other).unwrap_err().to_string();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    admin
        .helm(&[&other[..], &["--take-ownership", "--set=crds.keep=false"]].concat())
        .unwrap();
    // The document's step. The finalizer of Kubernetes 1.37 fails if it is the first to read a
    // kind, and then tries again only with the next resync, after minutes.
    let objects = "ipujobs,ipupartitions,ipupolicies,vipucontrollers,ipuaccountings";
    admin
        .kubectl(&["get", objects, "--all-namespaces"])
        .unwrap();
    admin.helm(&["uninstall", "other"]).unwrap();
    eventually("the CRDs go", async || {
        let left = ["get", "customresourcedefinitions", "--output=name"];
        Seen::when(admin.kubectl(&left).unwrap(), String::is_empty)
    })
    .await;
}

#[tokio::test]
async fn helm_4_takes_over_the_crds_of_the_folder_and_leaves_them_again() {
    let plane = planes::own().await;
    let mut admin = Admin::of("ipu-operator", plane.kubeconfig());
    admin.helm = "helm-4";
    let install = ["install", admin.name, admin.chart(), "--create-namespace"];
    admin.helm(&install).unwrap();
    let upgrade = ["upgrade", admin.name, admin.chart()];
    let managed = [&upgrade[..], &["--set=crds.install=true"]].concat();
    let refused = admin.helm(&managed).unwrap_err().to_string();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    admin
        .helm(&[&managed[..], &["--take-ownership"]].concat())
        .unwrap();
    admin.helm(&managed).unwrap();

    admin
        .helm(&[&upgrade[..], &["--set=crds.install=false"]].concat())
        .unwrap();
    assert_eq!(short_name(&admin), "ipj");
    admin.helm(&["uninstall", admin.name]).unwrap();
    assert_eq!(short_name(&admin), "ipj");
}

/// Returns the chart with an older CRD of jobs.
pub(crate) fn older_chart(admin: &Admin, folder: &Path) -> String {
    let chart = folder.join("ipu-operator");
    let mut copy = Command::new("cp");
    command::run(copy.arg("-r").arg(admin.chart()).arg(&chart)).unwrap();
    let file = chart.join("crds/ipujobs.graphcore.ai.yaml");
    let present = fs::read_to_string(&file).unwrap();
    let older = present.replace("    - ipj\n", &format!("    - {OLD_SHORT_NAME}\n"));
    assert_ne!(older, present);
    fs::write(&file, older).unwrap();
    chart.to_str().unwrap().to_owned()
}

pub(crate) fn short_name(admin: &Admin) -> String {
    let get = ["get", "customresourcedefinition", "ipujobs.graphcore.ai"];
    let name = ["--output=jsonpath={.spec.names.shortNames[0]}"];
    admin.kubectl(&[&get[..], &name].concat()).unwrap()
}
