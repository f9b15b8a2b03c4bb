//! Fetches the component of a reference, and verifies its signatures.

use super::cosign::{BUNDLE, PURPOSE, PublicKey, SIGNATURE, SIMPLE_SIGNING, Signature, Unsigned};
use super::manifest::{Descriptor, Manifest, ManifestError, component_of};
use super::reference::{Reference, is_digest};
use super::registry::{Registry, RegistryError};

/// Most signatures of each format. Everyone with write access to the repository can add some.
const SIGNATURES: usize = 32;

/// Size limit of a signature, in bytes.
const SIGNATURE_SIZE: u64 = 256 << 10;

/// Annotation of cosign 3 with the purpose of a bundle.
const PURPOSE_OF_BUNDLE: &str = "dev.sigstore.bundle.predicateType";

/// A component in a registry.
#[derive(Clone, Debug)]
pub struct Found {
    /// Digest of the manifest.
    pub manifest: String,
    /// The manifest.
    pub document: Vec<u8>,
    /// Descriptor of the component, which is not fetched yet.
    pub component: Descriptor,
}

/// A key that signed a component.
#[derive(Clone, Debug)]
pub struct Signer<'a> {
    /// The key.
    pub key: &'a PublicKey,
    /// Its signature of the manifest.
    pub signature: Signature,
}

impl Signer<'_> {
    fn is_by(&self, key: &PublicKey) -> bool {
        self.key.fingerprint() == key.fingerprint()
    }
}

/// Failure to fetch a component.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The registry does not serve it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The manifest has no component.
    #[error("the manifest {0} leads to no component")]
    Manifest(String, #[source] ManifestError),
    /// The manifest has no valid signature.
    #[error("the manifest {0} has no signature by one of the keys")]
    Unsigned(String, #[source] Unsigned),
}

/// Resolves a reference to a component.
pub async fn find(registry: &Registry, reference: &Reference) -> Result<Found, FetchError> {
    let document = registry.manifest(reference.version()).await?;
    let component = component_of(&document.bytes);
    match component {
        Ok(component) => Ok(Found {
            manifest: document.digest,
            document: document.bytes,
            component,
        }),
        Err(source) => Err(FetchError::Manifest(document.digest, source)),
    }
}

/// Returns all keys that signed a component: when one is removed, the others still count. An
/// invalid or unavailable signature does not hide the others.
pub async fn signers<'a>(
    registry: &Registry,
    found: &Found,
    keys: &'a [PublicKey],
) -> Result<Vec<Signer<'a>>, FetchError> {
    let digest = &found.manifest;
    let forms = [
        simple(registry, digest).await,
        bundles(registry, digest).await,
    ];
    let (mut signers, mut rejections, mut failed) = (Vec::<Signer<'a>>::new(), Vec::new(), None);
    for form in forms {
        let locations = form.unwrap_or_else(|error| {
            failed.get_or_insert(error);
            Vec::new()
        });
        for location in locations {
            match location.signature(registry).await {
                Ok(Some(signature)) => match signature.verify(keys, digest) {
                    // One signature of a key is sufficient.
                    Ok(key) if signers.iter().any(|signer| signer.is_by(key)) => {}
                    Ok(key) => signers.push(Signer { key, signature }),
                    Err(rejection) => rejections.push(rejection),
                },
                Ok(None) => {}
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
    }
    if !signers.is_empty() {
        return Ok(signers);
    }
    Err(match failed {
        Some(error) => error.into(),
        None => FetchError::Unsigned(digest.clone(), Unsigned::of(rejections)),
    })
}

/// Fetches the component, of at most `limit` bytes.
pub async fn component(
    registry: &Registry,
    found: &Found,
    limit: u64,
) -> Result<Vec<u8>, FetchError> {
    Ok(registry.blob(&found.component, limit).await?)
}

/// Returns the tag for the signatures of a manifest, of cosign and of registries without the
/// referrers API.
fn tag(digest: &str) -> String {
    digest.replacen(':', "-", 1)
}

/// Location of a signature.
enum SignatureLocation {
    /// Of cosign 1 and 2: the payload and its signature.
    Simple(Descriptor, String),
    /// Of cosign 3: the digest of an artefact with a bundle.
    Bundle(String),
}

impl SignatureLocation {
    /// Fetches the signature. `None` if the artefact has no bundle.
    async fn signature(&self, registry: &Registry) -> Result<Option<Signature>, RegistryError> {
        match self {
            Self::Simple(payload, signature) => Ok(Some(Signature::Simple {
                payload: registry.blob(payload, SIGNATURE_SIZE).await?,
                signature: signature.clone(),
            })),
            Self::Bundle(digest) => {
                let artefact = manifest(registry, digest).await?.unwrap_or_default();
                let mut layers = artefact.layers.iter();
                let layer = layers.find(|layer| is_bundle(Some(&layer.media_type), &layer.digest));
                let Some(layer) = layer else {
                    return Ok(None);
                };
                let bundle = registry.blob(layer, SIGNATURE_SIZE).await?;
                Ok(Some(Signature::Bundle(bundle)))
            }
        }
    }
}

fn is_bundle(kind: Option<&str>, digest: &str) -> bool {
    kind.is_some_and(|kind| kind.starts_with(BUNDLE)) && is_digest(digest)
}

/// Finds the signatures of cosign 1 and 2.
async fn simple(
    registry: &Registry,
    digest: &str,
) -> Result<Vec<SignatureLocation>, RegistryError> {
    let tag = format!("{}.sig", tag(digest));
    let manifest = manifest(registry, &tag).await?.unwrap_or_default();
    let is_signature =
        |layer: &&Descriptor| layer.media_type == SIMPLE_SIGNING && is_digest(&layer.digest);
    let signatures = manifest.layers.iter().filter(is_signature);
    let signatures = signatures.filter_map(|layer| {
        let signature = layer.annotations.get(SIGNATURE)?;
        Some(SignatureLocation::Simple(layer.clone(), signature.clone()))
    });
    Ok(signatures.take(SIGNATURES).collect())
}

/// Finds the signatures of cosign 3. Attestations have the same format, and another purpose.
async fn bundles(
    registry: &Registry,
    digest: &str,
) -> Result<Vec<SignatureLocation>, RegistryError> {
    let lists: Vec<Manifest> = match registry.referrers(digest).await? {
        Some(pages) => {
            let pages = pages.iter().filter_map(|page| Manifest::parse(page).ok());
            pages.collect()
        }
        None => Vec::from_iter(manifest(registry, &tag(digest)).await?),
    };
    let referrers = lists.iter().filter_map(|list| list.manifests.as_ref());
    let is_signature = |referrer: &&Descriptor| {
        let purpose = referrer.annotations.get(PURPOSE_OF_BUNDLE);
        is_bundle(referrer.artifact_type.as_deref(), &referrer.digest)
            && purpose.is_none_or(|purpose| purpose == PURPOSE)
    };
    let signatures = referrers.flatten().filter(is_signature).take(SIGNATURES);
    let locations = signatures.map(|referrer| SignatureLocation::Bundle(referrer.digest.clone()));
    Ok(locations.collect())
}

/// Fetches a manifest. `None` if it does not exist or is invalid.
async fn manifest(registry: &Registry, version: &str) -> Result<Option<Manifest>, RegistryError> {
    match registry.manifest(version).await {
        Ok(document) => Ok(Manifest::parse(&document.bytes).ok()),
        Err(error) if error.is_absence() => Ok(None),
        Err(error) => Err(error),
    }
}
