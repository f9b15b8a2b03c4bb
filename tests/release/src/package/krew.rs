//! The manifest with which krew, the package manager of kubectl's plugins, installs `kubectl ipu`
//! from a release.

use cluster::platform::Platform;
use serde_json::{Value, json};

use super::archive::Files;
use super::{PackageError, VERSION, name, plugin_file};
use crate::dist::PLUGIN;

/// Name of the manifest: krew requires the name of the plugin.
pub const NAME: &str = "ipu.yaml";

/// The text in krew's list.
const SHORT: &str = "Explain waiting IPU jobs and drain IPU controllers";

/// The text that krew shows for the plugin.
const LONG: &str = "Explains why an IPUJob or a Pod waits for Graphcore IPUs, shows who uses them and where the \
                    IPU-hours went, and cordons and drains V-IPU controllers. It needs the IPU Operator in the \
                    cluster, and uses your kubeconfig and your rights.";

/// The manifest for an archive with these files and this checksum. The address of the published
/// archive is unknown, so `uri` is its name. If the chart has no home page, there is no `homepage`.
/// The publisher completes both.
pub fn manifest(
    files: &Files,
    platforms: &[Platform],
    sha256: &str,
) -> Result<Vec<u8>, PackageError> {
    let platforms: Vec<_> = platforms.iter().map(|one| platform(*one, sha256)).collect();
    let mut manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "ipu"},
        "spec": {
            "version": format!("v{VERSION}"),
            "shortDescription": SHORT,
            "description": LONG,
            "platforms": platforms,
        },
    });
    if let Some(home) = home(files)? {
        manifest["spec"]["homepage"] = home.into();
    }
    let text = serde_saphyr::to_string(&manifest).map_err(PackageError::Krew)?;
    Ok(text.into_bytes())
}

fn platform(platform: Platform, sha256: &str) -> Value {
    let folder = name(VERSION);
    let copied = |file: &str| json!({"from": format!("{folder}/{file}"), "to": "."});
    json!({
        "selector": {"matchLabels": {"os": "linux", "arch": platform.architecture}},
        "uri": format!("{folder}.tar.gz"),
        "sha256": sha256,
        "files": [copied(&plugin_file(platform)), copied("LICENSE")],
        "bin": PLUGIN,
    })
}

/// The home page of the chart, if it has one.
fn home(files: &Files) -> Result<Option<String>, PackageError> {
    let chart = files.get("charts/ipu-operator/Chart.yaml");
    let chart = String::from_utf8_lossy(chart.map_or(&[][..], Vec::as_slice));
    let chart: Value = serde_saphyr::from_str(&chart).map_err(PackageError::Chart)?;
    let home = chart["home"].as_str().filter(|home| !home.is_empty());
    Ok(home.map(ToOwned::to_owned))
}

#[cfg(test)]
mod tests {
    use cluster::platform::AMD64;

    use super::*;

    fn files(chart: &str) -> Files {
        Files::from([(
            "charts/ipu-operator/Chart.yaml".to_owned(),
            chart.as_bytes().to_vec(),
        )])
    }

    #[test]
    fn a_manifest_names_the_archive_and_the_plugin_in_it() {
        let files = files("home: https://example.com/\n");
        let manifest = manifest(&files, &[AMD64], "9f86d0").unwrap();
        let manifest: Value =
            serde_saphyr::from_str(&String::from_utf8(manifest).unwrap()).unwrap();
        let spec = &manifest["spec"];
        assert_eq!(spec["homepage"], "https://example.com/");
        assert_eq!(spec["version"], format!("v{VERSION}"));
        let platform = &spec["platforms"][0];
        assert_eq!(platform["sha256"], "9f86d0");
        assert_eq!(platform["selector"]["matchLabels"]["arch"], "amd64");
        let from = format!("ipu-operator-{VERSION}/bin/linux-amd64/kubectl-ipu");
        assert_eq!(platform["files"][0]["from"], from);
    }

    #[test]
    fn without_a_home_page_in_the_chart_the_manifest_has_none() {
        for chart in ["name: ipu-operator\n", "home: \"\"\n"] {
            let manifest = manifest(&files(chart), &[AMD64], "9f86d0").unwrap();
            let manifest: Value =
                serde_saphyr::from_str(&String::from_utf8(manifest).unwrap()).unwrap();
            let spec = manifest["spec"].as_object().unwrap();
            assert!(!spec.contains_key("homepage"), "{chart}");
            assert!(spec.contains_key("shortDescription"), "{chart}");
        }
    }
}
