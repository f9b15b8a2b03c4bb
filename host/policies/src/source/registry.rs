//! Fetches a module from an OCI registry: only what the policy's digest names, and, where it must be
//! signed, only once that is known.

use ipu_api::ipupolicy::{ModuleSource, OciModule};
use ipu_guest_host::Limits;

use super::{SourceError, Sources, is_wanted};
use crate::oci::cosign::PublicKey;
use crate::oci::fetch::{FetchError, component, find, signer};
use crate::oci::reference::Reference;
use crate::oci::registry::{Access, Registry};

/// A module, and who signed it.
pub(super) struct Fetched {
    pub(super) component: Vec<u8>,
    /// Fingerprint of the key; none where it need not be signed.
    pub(super) signer: Option<String>,
}

impl Sources {
    pub(super) async fn of_registry(
        &self,
        place: &OciModule,
        wanted: &ModuleSource,
        keys: &[PublicKey],
    ) -> Result<Fetched, SourceError> {
        let _room = self.registries.acquire().await;
        let reference: Reference = place.reference.parse().map_err(SourceError::Reference)?;
        let registry = self.registry(place, &reference).await?;
        let failed = |source: FetchError| SourceError::Oci {
            reference: place.reference.clone(),
            source: Box::new(source),
        };
        let found = find(&registry, &reference).await.map_err(failed)?;
        is_wanted(wanted, &found.component.digest)?;
        let signer = if place.signature.is_some() {
            let key = signer(&registry, &found, keys).await.map_err(failed)?;
            Some(key.fingerprint().to_owned())
        } else {
            None
        };
        let limit = Limits::default().module;
        let component = component(&registry, &found, limit).await.map_err(failed)?;
        Ok(Fetched { component, signer })
    }

    async fn registry(
        &self,
        place: &OciModule,
        reference: &Reference,
    ) -> Result<Registry, SourceError> {
        let credentials = match &place.pull_secret {
            Some(secret) => Some(self.credentials(secret, reference).await?),
            None => None,
        };
        let authorities = match &place.certificate_authorities {
            Some(text) => {
                let field = "spec.module.oci.certificateAuthorities";
                Some(self.pem(text, field).await?)
            }
            None => None,
        };
        let access = Access {
            credentials,
            authorities,
            plain_http: place.plain_http,
            ..Access::default()
        };
        let registry = Registry::new(reference, access);
        registry.map_err(|error| SourceError::Registry(Box::new(error)))
    }
}
