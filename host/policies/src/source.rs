//! Fetches the module that a policy asks for, and nothing else: its digest says which one it is.

mod cluster;
pub mod folder;
mod kept;
mod registry;

use std::path::PathBuf;
use std::sync::Arc;

use ipu_api::ipupolicy::{ImageModule, ModuleSource};
use ipu_guest_host::digest_of;
use kube::Client;
use tokio::sync::Semaphore;

use self::folder::Folder;
use crate::oci::cosign::KeyError;
use crate::oci::cosign::PublicKey;
use crate::oci::credentials::CredentialsError;
use crate::oci::fetch::FetchError;
use crate::oci::reference::ReferenceError;
use crate::oci::registry::RegistryError;

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
    /// There is no such Secret, or it cannot be read.
    #[error(
        "failed to read the Secret {name} in namespace {namespace}; the operator may read those that the \
         chart's value policies.secrets names"
    )]
    Secret {
        /// Its name.
        name: String,
        /// The namespace of the release.
        namespace: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The Secret is of another kind.
    #[error(
        "the Secret {name} has the type {found:?}, and spec.module.oci.pullSecret needs \
         kubernetes.io/dockerconfigjson; `kubectl create secret docker-registry` makes one"
    )]
    SecretType {
        /// Its name.
        name: String,
        /// Its type.
        found: String,
    },
    /// The Secret has nothing for the registry.
    #[error("the Secret {name} of spec.module.oci.pullSecret cannot be used")]
    Credentials {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: CredentialsError,
    },
    /// A text in PEM is not where it should be.
    #[error("{place} has no key {key:?}, which {field} names")]
    Pem {
        /// The ConfigMap or Secret.
        place: String,
        /// The key.
        key: String,
        /// What names it.
        field: String,
    },
    /// A text in PEM has no place at all.
    #[error("{0} needs one of pem, configMap and secret")]
    NoPem(String),
    /// A text holds no keys.
    #[error("{field} cannot be used")]
    Keys {
        /// What names it.
        field: String,
        /// Why.
        #[source]
        source: KeyError,
    },
    /// The reference leads nowhere.
    #[error("spec.module.oci.reference cannot be used")]
    Reference(#[source] ReferenceError),
    /// The registry cannot be spoken to.
    #[error("failed to speak with the registry of spec.module.oci")]
    Registry(#[source] Box<RegistryError>),
    /// The registry does not give it.
    #[error("failed to fetch {reference}")]
    Oci {
        /// What names it.
        reference: String,
        /// Why.
        #[source]
        source: Box<FetchError>,
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
        "the source holds {found}, and spec.module.digest is {wanted}; \
         set spec.module.digest to the digest of the intended module"
    )]
    Digest {
        /// What is there.
        found: String,
        /// What is asked for.
        wanted: String,
    },
    /// The API server does not serve this, or the definition is older than the policy.
    #[error("spec.module names no source; it needs one of configMap, image and oci")]
    Nothing,
}

/// Modules that are fetched from registries at once.
pub const REGISTRIES: usize = 3;

/// Where modules are fetched from.
#[derive(Clone)]
pub struct Sources {
    /// A client of the API server.
    pub client: Client,
    /// Namespace of the release: no ConfigMap or Secret of another one is read.
    pub namespace: String,
    /// Folder of guests of the image.
    pub guests_dir: PathBuf,
    /// Folder where modules are kept that were fetched once, so that a process that is started again
    /// need not wait for their source.
    pub folder: Option<Arc<Folder>>,
    /// Room for modules that are fetched from registries at once: a slow one holds up few others, and
    /// nobody else.
    pub registries: Arc<Semaphore>,
}

impl SourceError {
    /// Whether what is there must not be loaded; otherwise it is not there yet.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Reference(_) => true,
            Self::Oci { source, .. } => matches!(**source, FetchError::Unsigned { .. }),
            _ => false,
        }
    }
}

impl Sources {
    /// The module that a policy asks for. One that must be signed is taken from the folder of kept
    /// modules only where one of the keys that count now was seen to have signed it.
    pub async fn fetch(&self, wanted: &ModuleSource) -> Result<Vec<u8>, SourceError> {
        let keys = self.keys(wanted).await?;
        let fingerprints: Vec<&str> = keys.iter().map(PublicKey::fingerprint).collect();
        if let Some(kept) = self.kept(wanted, &fingerprints).await {
            return Ok(kept);
        }
        let mut signer = None;
        let bytes = if let Some(place) = &wanted.config_map {
            self.of_config_map(place).await?
        } else if let Some(place) = &wanted.image {
            self.of_image(place).await?
        } else if let Some(place) = &wanted.oci {
            let fetched = self.of_registry(place, wanted, &keys).await?;
            signer = fetched.signer;
            fetched.component
        } else {
            return Err(SourceError::Nothing);
        };
        is_wanted(wanted, digest_of(&bytes).as_str())?;
        self.keep(wanted, &bytes, signer).await;
        Ok(bytes)
    }

    async fn of_image(&self, place: &ImageModule) -> Result<Vec<u8>, SourceError> {
        let path = self.guests_dir.join(&place.file);
        let read = tokio::fs::read(&path).await;
        read.map_err(|source| SourceError::Image { path, source })
    }
}

/// Whether a source holds what the policy asks for.
fn is_wanted(wanted: &ModuleSource, found: &str) -> Result<(), SourceError> {
    match &wanted.digest {
        Some(wanted) if wanted != found => Err(SourceError::Digest {
            found: found.to_owned(),
            wanted: wanted.clone(),
        }),
        _ => Ok(()),
    }
}
