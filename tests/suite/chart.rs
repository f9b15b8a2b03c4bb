//! The chart's copies of other files of the repository are equal to them.

mod alpha_5;
mod artifact_hub;
mod folder;
mod memory;
mod readme;
mod schema;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::sources::repository;

/// Every YAML file of a folder, by name.
fn manifests(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).expect("the folder can be listed");
    entries
        .map(|entry| entry.expect("a folder entry can be read").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| {
            let name = path.file_name().expect("a file has a name");
            let text = fs::read_to_string(&path).expect("a manifest is UTF-8");
            (name.to_string_lossy().into_owned(), text)
        })
        .collect()
}

#[test]
fn the_chart_carries_the_crds_as_they_are() {
    for (name, generated) in manifests(&repository().join("crds")) {
        is_current(&format!("crds/{name}"), &generated);
    }
    let carried = manifests(&repository().join("charts/ipu-operator/crds"));
    let names = [
        "ipuaccountings.graphcore.ai.yaml",
        "ipujobs.graphcore.ai.yaml",
        "ipupartitions.graphcore.ai.yaml",
        "ipupolicies.graphcore.ai.yaml",
        "vipucontrollers.graphcore.ai.yaml",
    ];
    assert_eq!(carried.keys().collect::<Vec<_>>(), names);
}

#[test]
fn the_chart_and_its_image_have_the_version_of_the_code() {
    let chart = fs::read_to_string(repository().join("charts/ipu-operator/Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        format!("version: {version}"),
        format!("appVersion: \"{version}\""),
    ] {
        assert!(
            chart.lines().any(|found| found == line),
            "Chart.yaml lacks `{line}`"
        );
    }
}

/// Compares a generated file of the chart with its source, or generates it if that is requested.
fn is_current(name: &str, made: &str) {
    if std::env::var_os("UPDATE_CHART").is_some() {
        let path = repository().join("charts/ipu-operator").join(name);
        fs::write(path, made).unwrap();
    }
    assert!(
        values::file(name) == made,
        "charts/ipu-operator/{name} does not match its source; run `make generate`, or \
         `UPDATE_CHART=1 cargo test --locked --workspace --test suite chart`"
    );
}

#[test]
fn the_schema_of_the_values_is_made_from_them() {
    let made = schema::render(&values::entries(), &values::old());
    is_current("values.schema.json", &made);
}

#[test]
fn the_readme_lists_every_value() {
    let readme = values::file("README.md");
    let made = readme::with_table(&readme, &values::entries(), &values::old());
    is_current("README.md", &made);
}

#[test]
fn every_value_is_explained() {
    for entry in values::entries() {
        let said = entry.is_section || !entry.text.is_empty();
        assert!(said, "{} has no comment in values.yaml", entry.name());
    }
}

#[test]
fn every_value_for_production_is_explained_and_differs_from_its_default() {
    let defaults: Value = serde_saphyr::from_str(&values::file("values.yaml")).unwrap();
    let entries = values::entries_of("values-production.yaml");
    let entries = entries.iter().filter(|entry| !entry.is_section);
    let mut seen = 0;
    for entry in entries {
        let name = entry.name();
        // A label is a key of the user.
        let default = defaults.pointer(&format!("/{}", entry.path.join("/")));
        assert_ne!(default, Some(&entry.default), "{name} has its default");
        let is_explained = !entry.text.is_empty() || entry.path.contains(&"labels".to_owned());
        assert!(is_explained, "{name} has no comment");
        seen += 1;
    }
    assert!(seen > 10, "{seen} values");
}

/// The documents with marked blocks, which run if they have no further requirements.
const DOCUMENTS: [&str; 2] = ["charts/ipu-operator/docs", "examples/docs"];

#[test]
fn every_block_of_the_documents_says_what_it_needs() {
    let known = [
        "sh",
        "sh nodes",
        "sh refused",
        "sh hardware",
        "sh elsewhere",
        "sh author",
        "sh kueue",
        "sh registry",
        "yaml",
        "text",
        "text example",
    ];
    for folder in DOCUMENTS {
        let mut seen = 0;
        for (path, text) in documents(folder) {
            let fences = text.lines().filter_map(|line| line.strip_prefix("```"));
            for begins in fences.step_by(2) {
                let said = known.contains(&begins);
                assert!(said, "{}: a block of {begins:?}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 20, "the documents in {folder} have {seen} blocks");
    }
}

#[test]
fn every_link_of_the_documents_leads_to_a_file() {
    let folders = DOCUMENTS.into_iter().chain(["crds", "examples"]);
    for (path, text) in folders.flat_map(documents) {
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
            let file = link.split('#').next().unwrap_or_default();
            let target = path.with_file_name(file);
            assert!(target.exists(), "{}: {link}", path.display());
        }
    }
}

/// Every document of a folder, with its text.
fn documents(folder: &str) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let documents = paths.filter(|path| path.extension().is_some_and(|found| found == "md"));
    documents
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}
