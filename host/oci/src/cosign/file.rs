//! Pure: signatures of a file, as `cosign sign-blob` and `openssl dgst -sha256 -sign` write them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::keys::maker;
use super::{PublicKey, Rejection};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    message_signature: Option<MessageSignature>,
}

#[derive(Deserialize)]
struct MessageSignature {
    signature: String,
}

/// Returns the key that signed a file. The signature is in a Sigstore bundle, in base64, or as it
/// is.
pub fn file_signer<'a>(
    file: &[u8],
    signature: &[u8],
    keys: &'a [PublicKey],
) -> Result<&'a PublicKey, Rejection> {
    maker(keys, file, &decoded(signature)?)
}

fn decoded(signature: &[u8]) -> Result<Vec<u8>, Rejection> {
    let text = signature.trim_ascii();
    if !text.starts_with(b"{") {
        let decoded = STANDARD.decode(text);
        return Ok(decoded.unwrap_or_else(|_| signature.to_owned()));
    }
    let bundle: Bundle =
        serde_json::from_slice(text).map_err(|_| Rejection::Form("it is no Sigstore bundle"))?;
    let no_signature = Rejection::Form("its bundle holds no signature of a file");
    let message = bundle.message_signature.ok_or(no_signature)?;
    let signature = STANDARD.decode(message.signature);
    signature.map_err(|_| Rejection::Form("it is not base64"))
}
