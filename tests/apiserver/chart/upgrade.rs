//! An upgrade keeps the names of objects, and the settings of an installation by an older chart.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::admin::{Admin, KUBERNETES};
use super::versions::replicas;

/// Every object of the chart in commit c80b819 and those added since, for the release
/// `ipu-operator` with default values: kind, namespace, name, and the immutable field (the selector
/// of a Deployment, the role of a binding). An upgrade that renames an object replaces it.
const NAMES: &str = include_str!("names.txt");

/// Values that add every optional object, and rename none.
const OPTIONAL: &str = "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,\
                        metrics.dashboard.enabled=true,certificates.source=certManager,\
                        certificates.certManager.issuerRef.name=ca";

#[test]
fn an_upgrade_keeps_every_object_and_its_name() {
    // Rendering needs no API server.
    let mut admin = Admin::of("ipu-operator", PathBuf::new());
    let chart = admin.chart().to_owned();
    // A values file of Graphcore's chart keeps the same names for every release.
    let releases = [
        ("ipu-operator", "fullnameOverride="),
        ("ipus", "fullnameOverride=ipu-operator"),
    ];
    for (release, values) in releases {
        for helm in ["helm", "helm-4"] {
            admin.helm = helm;
            let values = format!("{OPTIONAL},{values}");
            let template = ["template", release, &chart, KUBERNETES, "--set", &values];
            let rendered = admin.helm(&template).unwrap();
            let expected = NAMES.replace(
                "app.kubernetes.io/instance=ipu-operator",
                &format!("app.kubernetes.io/instance={release}"),
            );
            let expected = expected.replace(
                "ipu-operator-metrics-reader",
                &format!("{release}-metrics-reader"),
            );
            let mut expected: Vec<_> = expected.lines().map(ToOwned::to_owned).collect();
            expected.sort();
            assert_eq!(names(&rendered), expected, "{release} with {helm}");
        }
    }
}

/// Formats each rendered object as a line of `NAMES`, sorted.
fn names(rendered: &str) -> Vec<String> {
    let documents = rendered.split("\n---\n").map(str::trim);
    let documents = documents.filter(|document| !document.is_empty());
    let mut lines: Vec<String> = documents
        .map(|document| name(&serde_saphyr::from_str(document).unwrap()))
        .collect();
    lines.sort();
    lines
}

fn name(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").unwrap();
    let name = match text("/metadata/namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    let kind = text("/kind").unwrap();
    let fixed = match (kind, text("/roleRef/kind"), text("/roleRef/name")) {
        ("Deployment", ..) => selector(&object["spec"]["selector"]["matchLabels"]),
        (_, Some(kind), Some(role)) => format!("{kind}/{role}"),
        _ => return format!("{kind} {name}"),
    };
    format!("{kind} {name} {fixed}")
}

fn selector(labels: &Value) -> String {
    let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap();
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn settings_survive_an_upgrade_from_a_chart_with_fewer_values() {
    let mut admin = Admin::new("chart-reuse").await;
    let folder = tempfile::tempdir().unwrap();
    let older = older_chart(folder.path());
    for helm in ["helm", "helm-4"] {
        admin.helm = helm;
        let values = "controller.replicas=3,fullnameOverride=chart-reuse,admissionWebhooks.scope=chart-reuse";
        let install = ["install", admin.name, &older, "--set", values];
        admin.helm(&install).unwrap();
        let upgrade = ["upgrade", admin.name, admin.chart()];
        let refused = admin.helm(&[&upgrade[..], &["--reuse-values"]].concat());
        let refused = refused.unwrap_err().to_string();
        let names = ["missing properties", "'clusterDomain'", "'vipuProxy'"];
        assert!(
            names.iter().all(|name| refused.contains(name)),
            "{helm}: {refused}"
        );
        admin
            .helm(&[&upgrade[..], &["--reset-then-reuse-values"]].concat())
            .unwrap();
        assert_eq!(replicas(&admin), "3", "{helm}");
        admin.helm(&["uninstall", admin.name]).unwrap();
    }
}

/// A chart of this name with one of the current values.
fn older_chart(folder: &Path) -> String {
    let about = "apiVersion: v2\nname: ipu-operator\nversion: 0.0.1\n";
    fs::write(folder.join("Chart.yaml"), about).unwrap();
    fs::write(folder.join("values.yaml"), "controller: { replicas: 2 }\n").unwrap();
    folder.to_str().unwrap().to_owned()
}
