//! Pure: the manifests of artefacts: finds the component of a manifest, and builds the manifest of
//! a component.

use std::collections::BTreeMap;

use ipu_api::guest::digest::digest_of;
use ipu_text::sanitize;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::EXCERPT_MAX;
use super::reference::is_digest;

/// Type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Type of a list of manifests.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Accepted types: those of OCI, and those of Docker, which some registries use instead.
pub(super) const ACCEPTED: [&str; 4] = [
    MANIFEST,
    INDEX,
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// Type of the component in an artefact of the CNCF format.
pub const COMPONENT: &str = "application/wasm";

/// Type of the configuration of such an artefact.
pub const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// Types of the component in older formats: of `wasm-to-oci`, which many tools use (also
/// Kubewarden), and of `wasme`.
const OLDER: [&str; 2] = [
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
];

/// A reference to a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its type.
    pub media_type: String,
    /// Its digest.
    pub digest: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Its artefact type, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
}

/// The relevant fields of a manifest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
    /// Only an index has them.
    #[serde(default)]
    pub(super) manifests: Option<Vec<Descriptor>>,
}

/// Reason why a manifest has no component.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not a valid manifest.
    #[error("it is no OCI manifest")]
    Json(#[source] serde_json::Error),
    /// It is a list of manifests.
    #[error("it is a list of {0} manifests; name one of them by its digest")]
    Index(usize),
    /// It has no component.
    #[error(
        "it holds no component, which has the type {COMPONENT}, but {0}; `ipu-operator policy push` \
         makes an artefact that does"
    )]
    None(String),
    /// It has several components.
    #[error("it has {0} components, and a module needs exactly one; push them one by one")]
    Several(usize),
    /// The digest of the component is invalid.
    #[error(
        "its component has the digest {:?}, and only sha256: and 64 hexadecimal digits are checked",
        sanitize(.0, EXCERPT_MAX)
    )]
    Digest(String),
}

impl Manifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        serde_json::from_slice(bytes).map_err(ManifestError::Json)
    }
}

/// Finds the component of a manifest.
pub fn component_of(manifest: &[u8]) -> Result<Descriptor, ManifestError> {
    let manifest = Manifest::parse(manifest)?;
    if let Some(manifests) = manifest.manifests {
        return Err(ManifestError::Index(manifests.len()));
    }
    let is_component = |layer: &&Descriptor| {
        let media_type = layer.media_type.as_str();
        media_type == COMPONENT || OLDER.contains(&media_type)
    };
    let mut components = manifest.layers.iter().filter(is_component);
    let Some(component) = components.next() else {
        return Err(ManifestError::None(layer_types(&manifest.layers)));
    };
    let others = components.count();
    if others > 0 {
        return Err(ManifestError::Several(others + 1));
    }
    if !is_digest(&component.digest) {
        return Err(ManifestError::Digest(component.digest.clone()));
    }
    Ok(component.clone())
}

/// Formats the first layer types of a manifest.
fn layer_types(layers: &[Descriptor]) -> String {
    let types = layers.iter().take(3);
    let types: Vec<_> = types
        .map(|layer| sanitize(&layer.media_type, EXCERPT_MAX))
        .collect();
    if types.is_empty() {
        return "nothing".to_owned();
    }
    types.join(", ")
}

/// An artefact to push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    /// The configuration.
    pub config: Vec<u8>,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// Digest of the manifest.
    pub digest: String,
}

/// Builds the artefact of a component, in the CNCF format. Its creation time is 1970, so that the
/// same component always has the same digest.
pub fn artefact(component: &[u8], imports: &[String], exports: &[String]) -> Artefact {
    let digest = digest_of(component).to_string();
    let config = json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [digest],
        "component": {"imports": imports, "exports": exports},
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [descriptor(COMPONENT, component)],
    });
    let manifest = manifest.to_string().into_bytes();
    Artefact {
        config,
        digest: digest_of(&manifest).to_string(),
        manifest,
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest_of(bytes).to_string(), "size": bytes.len()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(media_type: &str) -> Value {
        descriptor(media_type, b"component")
    }

    fn component(manifest: &Value) -> Result<Descriptor, ManifestError> {
        component_of(manifest.to_string().as_bytes())
    }

    #[test]
    fn the_component_is_found_in_new_and_older_artefacts() {
        for media_type in [COMPONENT, OLDER[0], OLDER[1]] {
            let other = layer("text/plain");
            let found = component(&json!({"layers": [other, layer(media_type)]})).unwrap();
            assert_eq!(found.media_type, media_type);
            assert_eq!(found.digest, digest_of(b"component").to_string());
            assert_eq!(found.size, 9);
        }
    }

    #[test]
    fn what_is_no_single_component_is_named() {
        let (wasm, tar) = (
            layer(COMPONENT),
            layer("application/vnd.oci.image.layer.v1.tar"),
        );
        let long = layer(&"\u{7}x".repeat(500));
        let mut weak = layer(COMPONENT);
        weak["digest"] = json!("sha512:12");
        for (manifest, words) in [
            (json!({"layers": []}), "but nothing"),
            (
                json!({"layers": [tar]}),
                "but application/vnd.oci.image.layer.v1.tar; ",
            ),
            (
                json!({"layers": [long]}),
                &*format!("but {}…; ", "\u{fffd}x".repeat(39)),
            ),
            (json!({"layers": [wasm, wasm]}), "it has 2 components"),
            (json!({"layers": [weak]}), "has the digest \"sha512:12\""),
            (json!({"manifests": [wasm, wasm]}), "a list of 2 manifests"),
            (json!(1), "it is no OCI manifest"),
            (json!({"layers": [{"digest": 1}]}), "it is no OCI manifest"),
        ] {
            let error = component(&manifest).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_component_makes_the_same_artefact_each_time_in_which_it_is_found() {
        let make = || artefact(b"component", &["ipu:policy/log".to_owned()], &[]);
        assert_eq!(make(), make());
        let manifest = make().manifest;
        let found = component_of(&manifest).unwrap();
        assert_eq!(found.digest, digest_of(b"component").to_string());
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["config"]["mediaType"], CONFIG);
        assert_eq!(
            manifest["config"]["digest"],
            digest_of(&make().config).to_string()
        );
        let config: Value = serde_json::from_slice(&make().config).unwrap();
        assert_eq!(config["layerDigests"][0], found.digest);
        assert_eq!(config["component"]["imports"][0], "ipu:policy/log");
    }
}
