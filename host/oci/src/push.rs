//! Pushes a component to a registry, as an artefact.

use bytes::Bytes;

use super::manifest::{Artefact, MANIFEST};
use super::reference::Reference;
use super::registry::{Registry, RegistryError};

/// Pushes a component. The manifest is last, so that its blobs exist once it is visible.
pub async fn push(
    registry: &Registry,
    reference: &Reference,
    component: &[u8],
    artefact: Artefact,
) -> Result<(), RegistryError> {
    let component = Bytes::copy_from_slice(component);
    registry.put_blob(component).await?;
    registry.put_blob(artefact.config.into()).await?;
    let version = reference.tag().unwrap_or(&artefact.digest);
    let manifest = artefact.manifest.into();
    registry.put_manifest(version, MANIFEST, manifest).await
}
