//! The annotations of the chart for Artifact Hub say what the chart and the repository say, in the
//! forms that it takes.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use super::{manifests, values};
use crate::sources::repository;

/// An annotation. Lists are YAML in a string.
fn annotation(name: &str) -> Value {
    let chart: Value = serde_saphyr::from_str(&values::file("Chart.yaml")).unwrap();
    let text = &chart["annotations"][format!("artifacthub.io/{name}")];
    let text = text.as_str();
    let text = text.unwrap_or_else(|| panic!("Chart.yaml has no artifacthub.io/{name}"));
    serde_saphyr::from_str(text).unwrap()
}

fn list(name: &str) -> Vec<Value> {
    annotation(name).as_array().unwrap().clone()
}

#[test]
fn it_lists_each_kind_of_the_chart_with_its_name_and_version() {
    let listed = list("crds");
    for entry in &listed {
        for name in ["displayName", "description"] {
            let text = entry[name].as_str().unwrap();
            assert!(!text.is_empty(), "{entry} has no {name}");
        }
    }
    let listed = listed
        .iter()
        .map(|entry| json!([entry["kind"], entry["name"], entry["version"]]).to_string());
    let listed: BTreeSet<_> = listed.collect();
    let definitions = manifests(&repository().join("charts/ipu-operator/crds"));
    let served = definitions.values().flat_map(|text| {
        let crd: Value = serde_saphyr::from_str(text).unwrap();
        let versions = crd["spec"]["versions"].as_array().unwrap().clone();
        versions.into_iter().map(move |version| {
            let (kind, name) = (&crd["spec"]["names"]["kind"], &crd["metadata"]["name"]);
            json!([kind, name, version["name"]]).to_string()
        })
    });
    assert_eq!(listed, served.collect::<BTreeSet<_>>());
}

#[test]
fn its_images_are_those_of_the_default_values() {
    let defaults: Value = serde_saphyr::from_str(&values::file("values.yaml")).unwrap();
    let repository = defaults["controller"]["image"]["repository"].as_str();
    let image = format!("{}:{}", repository.unwrap(), env!("CARGO_PKG_VERSION"));
    let images = list("images");
    let names: Vec<_> = images.iter().map(|entry| &entry["image"]).collect();
    assert_eq!(names, [&json!(image)]);
    // The proxy and the agent have the image of the controller, so there is no other one.
    assert_eq!(defaults["vipuProxy"]["image"]["repository"], "");
    assert_eq!(defaults["global"]["launcherImage"], "");
}

#[test]
fn its_examples_are_files_that_tests_apply() {
    let file = |name: &str| -> Value {
        let path = repository().join("examples").join(name);
        serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let files = ["01-single-worker.yaml", "policies/limit.yaml"].map(file);
    assert_eq!(list("crdsExamples"), files);
}

#[test]
fn its_words_are_those_that_artifact_hub_knows() {
    let kinds = [
        "added",
        "changed",
        "deprecated",
        "removed",
        "fixed",
        "security",
    ];
    for change in list("changes") {
        let kind = change["kind"].as_str().unwrap();
        assert!(kinds.contains(&kind), "{change}");
        assert!(change["description"].is_string(), "{change}");
    }
    assert_eq!(annotation("category"), "ai-machine-learning");
    let licence = format!("license = \"{}\"", annotation("license").as_str().unwrap());
    let workspace = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    assert!(workspace.contains(&licence), "{licence}");
    // It takes `true` and `false` as strings only.
    let chart = values::file("Chart.yaml");
    for name in ["operator", "prerelease"] {
        let quoted = |value: &str| chart.contains(&format!("artifacthub.io/{name}: \"{value}\""));
        assert!(quoted("true") || quoted("false"), "{name}");
    }
}
