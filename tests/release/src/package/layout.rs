//! OCI layouts: artefacts in a folder, from which tools copy them to a registry, with the same
//! digests.

use ipu_api::guest::digest::digest_of;
use ipu_oci::manifest::{INDEX, MANIFEST};
use serde_json::{Value, json};

use super::archive::Files;

/// The annotation with the name of an artefact in a layout.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// An artefact that is ready to be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its name in the layout; empty in the archive of an image.
    pub name: String,
    /// Its digest, `sha256:...`.
    pub digest: String,
}

/// A layout in the making.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    files: Files,
    manifests: Vec<Value>,
}

impl Layout {
    /// Adds a blob.
    pub fn blob(&mut self, content: Vec<u8>) {
        let digest = digest_of(&content).to_string();
        self.files.insert(path(&digest), content);
    }

    /// Adds an artefact under a name. Its blobs are added separately.
    pub fn artefact(&mut self, name: &str, manifest: Vec<u8>) {
        self.manifests.push(json!({
            "mediaType": MANIFEST,
            "digest": digest_of(&manifest).to_string(),
            "size": manifest.len(),
            "annotations": {REF_NAME: name},
        }));
        self.blob(manifest);
    }

    /// Its files.
    pub fn finish(mut self) -> Files {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": self.manifests});
        let mark = json!({"imageLayoutVersion": "1.0.0"});
        for (name, content) in [("index.json", index), ("oci-layout", mark)] {
            let content = content.to_string().into_bytes();
            self.files.insert(name.to_owned(), content);
        }
        self.files
    }
}

/// The artefacts of a layout. Without a readable index there are none.
pub fn roots(files: &Files) -> Vec<Root> {
    let index = files.get("index.json").map_or(&[][..], Vec::as_slice);
    let index: Value = serde_json::from_slice(index).unwrap_or_default();
    let manifests = index["manifests"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let root = |manifest: &Value| Root {
        name: text(&manifest["annotations"][REF_NAME]),
        digest: text(&manifest["digest"]),
    };
    manifests.iter().map(root).collect()
}

/// The file of a blob in a layout.
pub fn path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}
