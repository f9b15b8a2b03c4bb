//! What the chart repeats from elsewhere in the repository is the same there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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
    let generated = manifests(&repository().join("crds"));
    let carried = manifests(&repository().join("charts/ipu-operator/crds"));
    let names = [
        "ipujobs.graphcore.ai.yaml",
        "ipupartitions.graphcore.ai.yaml",
        "ipupolicies.graphcore.ai.yaml",
    ];
    assert_eq!(carried.keys().collect::<Vec<_>>(), names);
    for name in names {
        let same = generated.get(name) == carried.get(name);
        assert!(same, "copy crds/{name} to charts/ipu-operator/crds/{name}");
    }
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
