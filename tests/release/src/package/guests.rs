//! The built-in guests as OCI artefacts, in one layout from which tools copy them to a registry.

use std::fs;
use std::path::{Path, PathBuf};

use cluster::files::{At, FileError};
use ipu_api::guest::digest::digest_of;
use ipu_guest_host::{InspectError, describe};
use ipu_oci::manifest::{INDEX, MANIFEST, artefact};
use serde_json::json;

use super::archive::Files;
use crate::guests::GUESTS;

/// Failure to make the artefacts.
#[derive(Debug, thiserror::Error)]
pub enum GuestsError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It cannot be described.
    #[error("failed to describe the guest {}", path.display())]
    Describe {
        /// The guest.
        path: PathBuf,
        /// The cause.
        #[source]
        source: InspectError,
    },
}

/// The layout of the guests in a folder. Each artefact is the one that `ipu-operator policy push` makes of the guest,
/// under the guest's name.
pub fn layout(folder: &Path) -> Result<Files, GuestsError> {
    let mut files = Files::new();
    let mut manifests = Vec::new();
    let mut blob = |content: Vec<u8>| {
        let digest = digest_of(&content).to_string();
        files.insert(format!("blobs/{}", digest.replace(':', "/")), content);
    };
    for guest in GUESTS {
        let path = folder.join(format!("{}.wasm", guest.name));
        let described = describe(&path);
        let described = described.map_err(|source| GuestsError::Describe {
            path: path.clone(),
            source,
        })?;
        let found = &described.capabilities;
        let imports: Vec<_> = found.imports.iter().map(|i| i.name.clone()).collect();
        let exports: Vec<_> = found.exports.iter().map(|e| e.name.clone()).collect();
        let component = fs::read(&path).at("read", &path)?;
        let artefact = artefact(&component, &imports, &exports);
        manifests.push(json!({
            "mediaType": MANIFEST,
            "digest": artefact.digest,
            "size": artefact.manifest.len(),
            "annotations": {"org.opencontainers.image.ref.name": guest.name},
        }));
        blob(component);
        blob(artefact.config);
        blob(artefact.manifest);
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    files.insert("index.json".to_owned(), index.to_string().into_bytes());
    let mark = json!({"imageLayoutVersion": "1.0.0"}).to_string();
    files.insert("oci-layout".to_owned(), mark.into_bytes());
    Ok(files)
}
