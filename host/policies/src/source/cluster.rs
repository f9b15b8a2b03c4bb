//! Reads the ConfigMaps and Secrets that policies refer to, in the namespace of the release.

use std::collections::BTreeMap;

use ipu_api::ipupolicy::{ConfigMapModule, PemSource, SecretName};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;

use super::keys::KeyList;
use super::stored_signature::StoredSignature;
use super::{Fetched, SourceError, Sources};
use ipu_oci::cosign::{Unsigned, file_signer};
use ipu_oci::credentials::Credentials;
use ipu_oci::reference::Reference;

/// End of the key with the signature of a module, after the key of the module.
const SIGNATURE_SUFFIX: &str = ".sig";

/// Type of a Secret with credentials for registries, and its one key.
const PULL_SECRET: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");

impl Sources {
    pub(super) async fn fetch_config_map(
        &self,
        source: &ConfigMapModule,
        lists: Vec<KeyList>,
    ) -> Result<Fetched, SourceError> {
        let map = self.config_map(&source.name).await?;
        let mut files = map.binary_data.unwrap_or_default();
        let component = files.remove(&source.key).map(|bytes| bytes.0);
        let component = component.ok_or_else(|| SourceError::Key {
            name: source.name.clone(),
            key: source.key.clone(),
        })?;
        let key = format!("{}{SIGNATURE_SUFFIX}", source.key);
        let text = map.data.and_then(|mut data| data.remove(&key));
        let signature = text.map(String::into_bytes);
        let signature = signature.or_else(|| files.remove(&key).map(|bytes| bytes.0));
        let mut signatures = BTreeMap::new();
        for list in lists {
            let found = match &signature {
                None => Err(Unsigned::NoFile(key.clone())),
                Some(signature) => file_signer(&component, signature, list.keys())
                    .map(|key| (key.fingerprint().to_owned(), signature.clone()))
                    .map_err(|rejection| Unsigned::File(key.clone(), rejection)),
            };
            let module = || format!("the key {:?} of the ConfigMap {}", source.key, source.name);
            let (signer, signature) = found.map_err(|unsigned| list.refusal(module(), unsigned))?;
            signatures.insert(signer, StoredSignature::File(ByteString(signature)));
        }
        Ok(Fetched {
            component,
            signatures,
        })
    }

    /// Returns the credentials for a reference.
    pub(super) async fn credentials(
        &self,
        secret: &SecretName,
        reference: &Reference,
    ) -> Result<Credentials, SourceError> {
        let (expected, key) = PULL_SECRET;
        let name = secret.name.clone();
        let secret = self.secret(&name).await?;
        let found = secret.type_.unwrap_or_default();
        let config = secret.data.and_then(|mut data| data.remove(key));
        let Some(config) = config.filter(|_| found == expected) else {
            return Err(SourceError::SecretType { name, found });
        };
        Credentials::find(&config.0, reference)
            .map_err(|source| SourceError::Credentials(name, source))
    }

    /// Returns a PEM text from its source.
    pub(super) async fn pem(
        &self,
        source: &PemSource,
        field: &str,
    ) -> Result<Vec<u8>, SourceError> {
        let missing = |place: String, key: &str| SourceError::Pem {
            place,
            key: key.to_owned(),
            field: field.to_owned(),
        };
        if let Some(text) = &source.pem {
            return Ok(text.clone().into_bytes());
        }
        if let Some(place) = &source.config_map {
            let map = self.config_map(&place.name).await?;
            let text = map.data.and_then(|mut data| data.remove(&place.key));
            let bytes = map.binary_data.and_then(|mut data| data.remove(&place.key));
            let found = text.map(String::into_bytes).or(bytes.map(|bytes| bytes.0));
            return found
                .ok_or_else(|| missing(format!("the ConfigMap {}", place.name), &place.key));
        }
        if let Some(place) = &source.secret {
            let secret = self.secret(&place.name).await?;
            let found = secret.data.and_then(|mut data| data.remove(&place.key));
            let found = found.map(|bytes| bytes.0);
            return found.ok_or_else(|| missing(format!("the Secret {}", place.name), &place.key));
        }
        Err(SourceError::NoPem(field.to_owned()))
    }

    async fn config_map(&self, name: &str) -> Result<ConfigMap, SourceError> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let map = api.get(name).await;
        map.map_err(|source| SourceError::ConfigMap {
            name: name.to_owned(),
            namespace: self.namespace.clone(),
            source: Box::new(source),
        })
    }

    async fn secret(&self, name: &str) -> Result<Secret, SourceError> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let secret = api.get(name).await;
        secret.map_err(|source| SourceError::Secret {
            name: name.to_owned(),
            namespace: self.namespace.clone(),
            source: Box::new(source),
        })
    }
}
