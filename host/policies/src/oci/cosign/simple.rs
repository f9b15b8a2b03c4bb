//! Pure: signatures as cosign 1 and 2 write them: a payload, which names a manifest, and its signature.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::keys::maker;
use super::{PublicKey, Rejection};

/// What a payload must say that it is.
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

/// The key that signed the manifest of this digest. Nothing of a payload is read before it is known
/// who wrote it.
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
