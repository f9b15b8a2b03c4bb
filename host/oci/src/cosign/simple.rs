//! Pure: signatures of cosign 1 and 2: a payload with the digest of a manifest, and its signature.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::keys::maker;
use super::{PublicKey, Rejection};

/// Type of a payload.
const PURPOSE: &str = "cosign container image signature";

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    purpose: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Returns the key that signed the manifest with this digest. It verifies the signature before it
/// parses the payload.
pub(super) fn verify<'a>(
    payload: &[u8],
    signature: &str,
    keys: &'a [PublicKey],
    digest: &str,
) -> Result<&'a PublicKey, Rejection> {
    let signature = STANDARD.decode(signature.trim());
    let signature = signature.map_err(|_| Rejection::Form("it is not base64"))?;
    let key = maker(keys, payload, &signature)?;
    let payload: Payload = serde_json::from_slice(payload)
        .map_err(|_| Rejection::Form("its payload names no manifest"))?;
    let Critical { image, purpose } = payload.critical;
    if purpose != PURPOSE {
        return Err(Rejection::Purpose(purpose));
    }
    if image.digest != digest {
        return Err(Rejection::Other(image.digest));
    }
    Ok(key)
}
