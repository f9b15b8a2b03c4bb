//! Reads the ConfigMaps and Secrets that policies refer to, in the namespace of the release.

use ipu_api::ipupolicy::{ConfigMapModule, ModuleSource, PemSource, SecretName};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;

use super::{SourceError, Sources};
use crate::oci::cosign::{PublicKey, public_keys};
use crate::oci::credentials::Credentials;
use crate::oci::reference::Reference;

/// Type of a Secret with credentials for registries, and its one key.
const PULL_SECRET: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");

impl Sources {
    pub(super) async fn fetch_config_map(
        &self,
        source: &ConfigMapModule,
    ) -> Result<Vec<u8>, SourceError> {
        let map = self.config_map(&source.name).await?;
        let found = map
            .binary_data
            .and_then(|mut data| data.remove(&source.key));
        let found = found.map(|bytes| bytes.0);
        found.ok_or_else(|| SourceError::Key {
            name: source.name.clone(),
            key: source.key.clone(),
        })
    }

    /// Returns the keys, one of which must have signed the module. Empty if it needs no signature.
    pub(super) async fn keys(&self, source: &ModuleSource) -> Result<Vec<PublicKey>, SourceError> {
        let oci = source.oci.as_ref();
        let Some(signature) = oci.and_then(|oci| oci.signature.as_ref()) else {
            return Ok(Vec::new());
        };
        let mut keys = Vec::new();
        for (index, key) in signature.keys.iter().enumerate() {
            let field = format!("spec.module.oci.signature.keys[{index}]");
            let text = self.pem(key, &field).await?;
            let found = public_keys(&text).map_err(|source| SourceError::Keys(field, source))?;
            keys.extend(found);
        }
        Ok(keys)
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
