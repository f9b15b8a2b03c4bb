//! The chart as Helm packs it, the index that makes the folder around it a Helm repository, and the
//! artefact that `helm push` would make of it.
//!
//! Helm's own `package` writes times of the moment into both.

use std::path::Path;

use cluster::files::{FileError, sha256_of};
use ipu_api::guest::digest::digest_of;
use ipu_oci::manifest::MANIFEST;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::archive::{self, Files};
use super::layout::Layout;
use super::{PackageError, VERSION};

/// The name of the packed chart.
pub fn file(version: &str) -> String {
    format!("ipu-operator-{version}.tgz")
}

/// Folders that `.helmignore` keeps out: tests, and documents, because Helm stores each release of
/// the chart in a Secret.
const KEPT_OUT: [&str; 2] = ["tests/", "docs/"];

/// The files of the chart without those that `.helmignore` keeps out.
pub fn files(checkout: &Path) -> Result<Files, FileError> {
    let mut files = Files::new();
    archive::add(&mut files, &checkout.join("charts/ipu-operator"), "")?;
    let named = files.into_iter().filter_map(|(name, content)| {
        let name = name.trim_start_matches('/').to_owned();
        let is_kept_out = KEPT_OUT.iter().any(|folder| name.starts_with(folder));
        (!is_kept_out).then_some((name, content))
    });
    Ok(named.collect())
}

/// The index of a repository with this chart.
pub fn index(files: &Files, packed: &[u8], time: u64) -> Result<Vec<u8>, PackageError> {
    let mut entry = description(files)?;
    let seconds = i64::try_from(time).unwrap_or_default();
    let created = Timestamp::from_second(seconds)
        .unwrap_or_default()
        .to_string();
    entry["created"] = json!(created);
    entry["digest"] = json!(sha256_of(packed));
    entry["urls"] = json!([file(VERSION)]);
    let index = json!({
        "apiVersion": "v1",
        "entries": {"ipu-operator": [entry]},
        "generated": created,
    });
    let text = serde_saphyr::to_string(&index).map_err(PackageError::Index)?;
    Ok(text.into_bytes())
}

/// The artefact of the packed chart, under its version in a layout. `helm pull oci://` reads it.
pub fn layout(files: &Files, packed: &[u8]) -> Result<Files, PackageError> {
    let description = description(files)?;
    let config = description.to_string().into_bytes();
    let described = |media_type: &str, content: &[u8]| {
        json!({
            "mediaType": media_type,
            "digest": digest_of(content).to_string(),
            "size": content.len(),
        })
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described("application/vnd.cncf.helm.config.v1+json", &config),
        "layers": [described("application/vnd.cncf.helm.chart.content.v1.tar+gzip", packed)],
        "annotations": {
            "org.opencontainers.image.title": description["name"],
            "org.opencontainers.image.version": description["version"],
            "org.opencontainers.image.description": description["description"],
        },
    });
    let mut layout = Layout::default();
    layout.blob(config);
    layout.blob(packed.to_owned());
    layout.artefact(VERSION, manifest.to_string().into_bytes());
    Ok(layout.finish())
}

/// The content of `Chart.yaml`.
fn description(files: &Files) -> Result<Value, PackageError> {
    let chart = files.get("Chart.yaml").map_or(&[][..], Vec::as_slice);
    let chart = String::from_utf8_lossy(chart);
    serde_saphyr::from_str(&chart).map_err(PackageError::Chart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::checkout;

    #[test]
    fn the_chart_contains_what_helm_would_pack_and_is_small() {
        let files = files(checkout()).unwrap();
        let ignored = String::from_utf8_lossy(&files[".helmignore"]).into_owned();
        for folder in KEPT_OUT {
            assert!(ignored.lines().any(|line| line == folder), "{folder}");
        }
        // A Secret has at most 1 MiB in base64, and the values and the manifests are in it as well.
        let packed = archive::tar_gz(&files, "ipu-operator/", 0).unwrap();
        assert!(packed.len() < 150_000, "{}", packed.len());
    }
}
