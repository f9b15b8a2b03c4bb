//! Fetches the modules of policies, and verifies their digests and signatures.

mod cache;
pub mod cache_dir;
mod cluster;
mod keys;
mod registry;
mod regular_file;
pub mod shared_dir;
mod stored_module;
mod stored_signature;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::{ImageModule, ModuleSource, PemSource};
use kube::Client;
use tokio::sync::Semaphore;

use self::cache_dir::CacheDir;
#[cfg(test)]
pub(crate) use self::keys::fixture;
pub use self::keys::{ReleaseKeys, Signers, Trust};
use ipu_oci::cosign::{KeyError, Unsigned};
use ipu_oci::credentials::CredentialsError;
use ipu_oci::fetch::FetchError;
use ipu_oci::reference::ReferenceError;
use ipu_oci::registry::RegistryError;

use self::shared_dir::SharedDir;
use self::stored_signature::StoredSignature;

/// Failure to fetch a module. A retry can succeed, because sources change.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The ConfigMap does not exist or cannot be read.
    #[error("failed to read the ConfigMap {name} in namespace {namespace}")]
    ConfigMap {
        /// Its name.
        name: String,
        /// The namespace of the release.
        namespace: String,
        /// The error of the API server.
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
    /// The Secret does not exist or cannot be read.
    #[error(
        "failed to read the Secret {name} in namespace {namespace}; the operator may read those that the \
         chart's value policies.secrets names"
    )]
    Secret {
        /// Its name.
        name: String,
        /// The namespace of the release.
        namespace: String,
        /// The error of the API server.
        #[source]
        source: Box<kube::Error>,
    },
    /// The Secret has another type.
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
    /// The Secret has no credentials for the registry.
    #[error("the Secret {0} of spec.module.oci.pullSecret cannot be used")]
    Credentials(String, #[source] CredentialsError),
    /// The ConfigMap or Secret has no such key.
    #[error("{place} has no key {key:?}, which {field} names")]
    Pem {
        /// The ConfigMap or Secret.
        place: String,
        /// The key.
        key: String,
        /// The field that refers to it.
        field: String,
    },
    /// A PEM source has no field.
    #[error("{0} needs one of pem, configMap and secret")]
    NoPem(String),
    /// The text has no valid keys.
    #[error("{0} cannot be used")]
    Keys(String, #[source] KeyError),
    /// A key for signatures cannot be read.
    #[error("{0} cannot be used, and no other key signed the module; restore it, or replace it")]
    SigningKey(String, #[source] Box<SourceError>),
    /// None of the keys signed the module.
    #[error("{module} has no signature by a key in {field}")]
    Unsigned {
        /// The module.
        module: String,
        /// The field or chart value with the keys.
        field: &'static str,
        /// The reason.
        #[source]
        source: Unsigned,
    },
    /// The reference is invalid.
    #[error("spec.module.oci.reference cannot be used")]
    Reference(#[source] ReferenceError),
    /// The client of the registry cannot be created.
    #[error("failed to create the client of the registry of spec.module.oci")]
    Registry(#[source] Box<RegistryError>),
    /// The registry does not serve the module.
    #[error("failed to fetch {0}")]
    Oci(String, #[source] Box<FetchError>),
    /// The image has no such file.
    #[error("failed to read {0} of the operator's image")]
    Image(PathBuf, #[source] std::io::Error),
    /// The source has another module.
    #[error(
        "the source holds {found}, and spec.module.digest is {wanted}; \
         set spec.module.digest to the digest of the intended module"
    )]
    Digest {
        /// Digest of the module in the source.
        found: String,
        /// Digest in the policy.
        wanted: String,
    },
    /// The policy has no source. The validation of the CRD normally prevents this.
    #[error("spec.module names no source; it needs one of configMap, image and oci")]
    NoSource,
}

/// Most concurrent fetches from registries.
pub const REGISTRIES: usize = 3;

/// The sources of modules.
#[derive(Clone)]
pub struct Sources {
    /// A client of the API server.
    pub client: Client,
    /// Namespace of the release. The operator reads ConfigMaps and Secrets only there.
    pub namespace: String,
    /// Directory of the guests in the image.
    pub guests_dir: PathBuf,
    /// Cache of fetched modules, so that a restarted process does not depend on their sources.
    pub cache: Option<Arc<CacheDir>>,
    /// Folder of modules that outlives the Pod.
    pub shared: Option<Arc<SharedDir>>,
    /// Keys of the release. One of them must have signed each module from outside the image. Empty:
    /// none is required.
    pub required_keys: Vec<PemSource>,
    /// Permits for concurrent fetches from registries. A slow registry delays few others.
    pub registries: Arc<Semaphore>,
}

impl SourceError {
    /// Whether the operator must not load the module. Otherwise the module is not available yet.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Reference(_) | Self::Unsigned { .. } => true,
            Self::SigningKey(_, source) => source.is_absence(),
            _ => false,
        }
    }

    /// Returns the fault of the signature, if the operator must not load the module because of it.
    pub fn signature_fault(&self) -> Option<SignatureFault> {
        match self {
            Self::Unsigned { .. } => Some(SignatureFault::Unsigned),
            Self::SigningKey(..) if self.is_absent_object() => Some(SignatureFault::KeysAbsent),
            Self::SigningKey(..) if self.is_refusal() => Some(SignatureFault::Unsigned),
            _ => None,
        }
    }

    /// Whether the source has no such text, or the operator may not read it, which only an admin
    /// can correct.
    fn is_absence(&self) -> bool {
        let is_text = matches!(self, Self::Pem { .. } | Self::NoPem(_) | Self::Keys(..));
        is_text || self.is_absent_object()
    }

    /// Whether the ConfigMap or Secret with the text does not exist, or the operator may not read
    /// it.
    fn is_absent_object(&self) -> bool {
        match self {
            Self::SigningKey(_, source) => source.is_absent_object(),
            Self::ConfigMap { source, .. } | Self::Secret { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if [403, 404].contains(&status.code))
            }
            _ => false,
        }
    }
}

/// Reason why no signature of a module counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureFault {
    /// None of the keys signed it.
    Unsigned,
    /// The ConfigMap or Secret with keys that could have signed it does not exist, or the operator
    /// may not read it.
    KeysAbsent,
}

/// A module, and its verified signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The module.
    pub component: Vec<u8>,
    /// Signatures by the fingerprint of their key: at least one of each list of keys.
    pub signatures: BTreeMap<String, StoredSignature>,
}

impl Fetched {
    /// Returns the keys that signed it.
    pub fn signers(&self) -> Signers {
        self.signatures.keys().cloned().collect()
    }
}

impl Sources {
    /// Fetches the module of a policy. A module that must be signed comes from a folder only with
    /// signatures of the current keys beside it.
    pub async fn fetch(&self, source: &ModuleSource) -> Result<Fetched, SourceError> {
        let lists = self.key_lists(source).await;
        if let Some(cached) = self.cached(source, &lists).await {
            return Ok(cached);
        }
        let fetched = if let Some(config_map) = &source.config_map {
            self.fetch_config_map(config_map, lists).await?
        } else if let Some(image) = &source.image {
            Fetched {
                component: self.read_image(image).await?,
                signatures: BTreeMap::new(),
            }
        } else if let Some(oci) = &source.oci {
            self.fetch_oci(oci, source, lists).await?
        } else {
            return Err(SourceError::NoSource);
        };
        check_digest(source, digest_of(&fetched.component).as_str())?;
        self.store(source, &fetched).await;
        Ok(fetched)
    }

    async fn read_image(&self, image: &ImageModule) -> Result<Vec<u8>, SourceError> {
        let path = self.guests_dir.join(&image.file);
        let read = tokio::fs::read(&path).await;
        read.map_err(|source| SourceError::Image(path, source))
    }
}

/// Checks the digest of a fetched module.
fn check_digest(source: &ModuleSource, found: &str) -> Result<(), SourceError> {
    match &source.digest {
        Some(wanted) if wanted != found => Err(SourceError::Digest {
            found: found.to_owned(),
            wanted: wanted.clone(),
        }),
        _ => Ok(()),
    }
}
