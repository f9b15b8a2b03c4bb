//! Fetches a module from an OCI registry, after its digest and the required signatures are
//! verified.

use std::collections::BTreeMap;

use ipu_api::ipupolicy::{ModuleSource, OciModule};
use ipu_guest_host::Limits;

use super::keys::KeyList;
use super::stored_signature::StoredSignature;
use super::{Fetched, SourceError, Sources, check_digest};
use ipu_oci::fetch::{FetchError, component, find, signers};
use ipu_oci::reference::Reference;
use ipu_oci::registry::{Access, Registry};

impl Sources {
    pub(super) async fn fetch_oci(
        &self,
        oci: &OciModule,
        source: &ModuleSource,
        lists: Vec<KeyList>,
    ) -> Result<Fetched, SourceError> {
        let _permit = self.registries.acquire().await;
        let reference: Reference = oci.reference.parse().map_err(SourceError::Reference)?;
        let registry = self.registry(oci, &reference).await?;
        let failed = |source: FetchError| SourceError::Oci(oci.reference.clone(), Box::new(source));
        let found = find(&registry, &reference).await.map_err(failed)?;
        check_digest(source, &found.component.digest)?;
        let mut signatures = BTreeMap::new();
        for list in lists {
            let signers = match signers(&registry, &found, list.keys()).await {
                Ok(signers) => signers,
                Err(FetchError::Unsigned(manifest, unsigned)) => {
                    let module = format!("the manifest {manifest} of {}", oci.reference);
                    return Err(list.refusal(module, unsigned));
                }
                Err(error) => return Err(failed(error)),
            };
            signatures.extend(signers.into_iter().map(|signer| {
                let stored = StoredSignature::of_manifest(&found.document, signer.signature);
                (signer.key.fingerprint().to_owned(), stored)
            }));
        }
        let limit = Limits::default().module;
        let component = component(&registry, &found, limit).await.map_err(failed)?;
        Ok(Fetched {
            component,
            signatures,
        })
    }

    async fn registry(
        &self,
        oci: &OciModule,
        reference: &Reference,
    ) -> Result<Registry, SourceError> {
        let credentials = match &oci.pull_secret {
            Some(secret) => Some(self.credentials(secret, reference).await?),
            None => None,
        };
        let ca_pem = match &oci.certificate_authorities {
            Some(text) => {
                let field = "spec.module.oci.certificateAuthorities";
                Some(self.pem(text, field).await?)
            }
            None => None,
        };
        let access = Access {
            credentials,
            ca_pem,
            plain_http: oci.plain_http,
            ..Access::default()
        };
        let registry = Registry::new(reference, access);
        registry.map_err(|error| SourceError::Registry(Box::new(error)))
    }
}
