//! Fetches the module that a policy asks for, and nothing else: its digest says which one it is.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;

use crate::api::ipupolicy::{ConfigMapModule, ImageModule, ModuleSource};
use crate::wasm::digest_of;

/// Why a module cannot be had. The next look may find it, since sources change by themselves.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no such ConfigMap, or it cannot be read.
    #[error("failed to read the ConfigMap {name} in namespace {namespace}")]
    ConfigMap {
        /// Its name.
        name: String,
        /// The namespace of the release.
        namespace: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The ConfigMap has no such key.
    #[error(
        "the ConfigMap {name} has no key {key:?} under binaryData; \
         `kubectl create configmap --from-file` puts a component there"
    )]
    Key {
        /// Name of the ConfigMap.
        name: String,
        /// The key.
        key: String,
    },
    /// The image has no such file.
    #[error("failed to read {path} of the operator's image")]
    Image {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The source holds another module.
    #[error(
        "the source holds {found}, and spec.module.digest asks for {wanted}; \
         set spec.module.digest to the one that is meant"
    )]
    Digest {
        /// What is there.
        found: String,
        /// What is asked for.
        wanted: String,
    },
    /// The API server does not serve this, or the definition is older than the policy.
    #[error("spec.module names no source; it needs one of configMap and image")]
    Nothing,
}

/// Where modules are fetched from.
#[derive(Clone)]
pub struct Sources {
    /// A client of the API server.
    pub client: Client,
    /// Namespace of the release: no ConfigMap of another one is read.
    pub namespace: String,
    /// Folder of guests of the image.
    pub guests_dir: PathBuf,
    /// Folder where modules are kept that were fetched once, so that a process that is started again
    /// need not wait for their source.
    pub kept_dir: Option<PathBuf>,
}

impl Sources {
    /// The module that a policy asks for.
    pub async fn fetch(&self, wanted: &ModuleSource) -> Result<Vec<u8>, SourceError> {
        if let Some(kept) = self.kept(wanted).await {
            return Ok(kept);
        }
        let bytes = if let Some(place) = &wanted.config_map {
            self.of_config_map(place).await?
        } else if let Some(place) = &wanted.image {
            self.of_image(place).await?
        } else {
            return Err(SourceError::Nothing);
        };
        let found = digest_of(&bytes);
        if let Some(wanted) = &wanted.digest
            && found.as_str() != wanted
        {
            return Err(SourceError::Digest {
                found: found.to_string(),
                wanted: wanted.clone(),
            });
        }
        self.keep(wanted, &bytes).await;
        Ok(bytes)
    }

    async fn of_config_map(&self, place: &ConfigMapModule) -> Result<Vec<u8>, SourceError> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let map = api.get(&place.name).await;
        let map = map.map_err(|source| SourceError::ConfigMap {
            name: place.name.clone(),
            namespace: self.namespace.clone(),
            source: Box::new(source),
        })?;
        let found = map.binary_data.and_then(|mut data| data.remove(&place.key));
        let found = found.map(|bytes| bytes.0);
        found.ok_or_else(|| SourceError::Key {
            name: place.name.clone(),
            key: place.key.clone(),
        })
    }

    async fn of_image(&self, place: &ImageModule) -> Result<Vec<u8>, SourceError> {
        let path = self.guests_dir.join(&place.file);
        let read = tokio::fs::read(&path).await;
        read.map_err(|source| SourceError::Image { path, source })
    }

    /// A module that was fetched before, where it is still what it was.
    async fn kept(&self, wanted: &ModuleSource) -> Option<Vec<u8>> {
        let path = self.kept_path(wanted)?;
        let bytes = tokio::fs::read(path).await.ok()?;
        let is_it = Some(digest_of(&bytes).as_str()) == wanted.digest.as_deref();
        is_it.then_some(bytes)
    }

    /// Keeps a module for the next start. Without it that start has to ask the source.
    async fn keep(&self, wanted: &ModuleSource, bytes: &[u8]) {
        let Some(path) = self.kept_path(wanted) else {
            return;
        };
        if let Err(error) = write_whole(&path, bytes).await {
            let path = path.display();
            tracing::warn!(%path, %error, "failed to keep a module for the next start");
        }
    }

    fn kept_path(&self, wanted: &ModuleSource) -> Option<PathBuf> {
        let folder = self.kept_dir.as_ref()?;
        // The image's files are as near as the folder.
        if wanted.image.is_some() {
            return None;
        }
        let digest = wanted.digest.as_ref()?.strip_prefix("sha256:")?;
        Some(folder.join(format!("{digest}.wasm")))
    }
}

/// Writes a file so that it is there whole or not at all.
async fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        tokio::fs::create_dir_all(folder).await?;
    }
    let part = path.with_extension(format!("part-{}", std::process::id()));
    tokio::fs::write(&part, bytes).await?;
    tokio::fs::rename(&part, path).await
}
