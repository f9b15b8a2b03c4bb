//! The built-in guests as OCI artefacts, in one layout from which tools copy them to a registry.

use std::fs;
use std::path::{Path, PathBuf};

use cluster::files::{At, FileError};
use ipu_guest_host::{InspectError, describe};
use ipu_oci::manifest::artefact;

use super::archive::Files;
use super::layout::Layout;
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

/// The layout of the guests in a folder. Each artefact is the one that `ipu-operator policy push`
/// makes of the guest, under the guest's name.
pub fn layout(folder: &Path) -> Result<Files, GuestsError> {
    let mut layout = Layout::default();
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
        layout.blob(component);
        layout.blob(artefact.config);
        layout.artefact(guest.name, artefact.manifest);
    }
    Ok(layout.finish())
}
