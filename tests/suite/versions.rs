//! The page of versions names those that the tests use.

use std::fs;

use crate::sources::repository;

/// Rows of the page, with the folders in `tests/tools` and the modules whose versions they name.
const ROWS: [(&str, &[(&str, &str)]); 6] = [
    (
        "Kubernetes",
        &[
            ("cluster", "k8s.io/kubernetes"),
            ("kubernetes-1.36", "k8s.io/kubernetes"),
            ("kubernetes-1.35", "k8s.io/kubernetes"),
            ("kubernetes-1.34", "k8s.io/kubernetes"),
        ],
    ),
    (
        "Helm",
        &[
            ("cluster", "helm.sh/helm/v3"),
            ("helm-4", "helm.sh/helm/v4"),
        ],
    ),
    (
        "Kueue, JobSet",
        &[
            ("queues", "sigs.k8s.io/kueue"),
            ("queues", "sigs.k8s.io/jobset"),
        ],
    ),
    (
        "cert-manager",
        &[("cert-manager", "github.com/cert-manager/cert-manager")],
    ),
    (
        "containerd",
        &[("cluster", "github.com/containerd/containerd/v2")],
    ),
    (
        "Multus, whereabouts, MACVLAN plugin",
        &[
            ("networks", "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"),
            ("networks", "github.com/k8snetworkplumbingwg/whereabouts"),
            ("networks", "github.com/containernetworking/plugins"),
        ],
    ),
];

fn text(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The version that a `go.mod` requires of a module.
fn version(pins: &str, module: &str) -> String {
    let pins = text(&format!("tests/tools/{pins}/go.mod"));
    let mut versions = pins.lines().filter_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        line.strip_prefix(module)?.strip_prefix(" v")
    });
    let version = versions.next().unwrap();
    version.split(' ').next().unwrap().to_owned()
}

/// The column `tested` of a row.
fn tested(row: &str) -> String {
    let page = text("charts/ipu-operator/docs/versions.md");
    let start = format!("| {row} | ");
    let mut rows = page.lines().filter_map(|line| line.strip_prefix(&start));
    let columns = rows.next().unwrap_or_else(|| panic!("no row {row}"));
    columns.split(" | ").next().unwrap().to_owned()
}

/// The words of a text that are versions.
fn versions_in(text: &str) -> Vec<String> {
    let words = text.split([' ', ',', ';']);
    let versions = words.filter(|word| word.split('.').count() == 3);
    versions.map(str::to_owned).collect()
}

#[test]
fn the_page_names_the_versions_of_the_tests() {
    for (row, modules) in ROWS {
        let pinned: Vec<_> = modules
            .iter()
            .map(|(pins, module)| version(pins, module))
            .collect();
        let mut found = versions_in(&tested(row));
        found.dedup();
        // The row of Kubernetes names the API server above the oldest kubelet once more.
        found.truncate(pinned.len());
        assert_eq!(found, pinned, "{row}");
    }
    let lock = text("tests/tools/prometheus.lock");
    let line = lock.lines().find(|line| line.starts_with("prometheus "));
    let pinned = line.and_then(|line| line.split([' ', '+']).nth(1));
    assert_eq!(Some(tested("Prometheus").as_str()), pinned);
}
