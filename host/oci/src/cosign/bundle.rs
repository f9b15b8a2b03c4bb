//! Pure: signatures of cosign 3: a Sigstore bundle with a statement in a DSSE envelope.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::keys::maker;
use super::{PublicKey, Rejection};

/// Payload type of an envelope.
const STATEMENT: &str = "application/vnd.in-toto+json";

/// Predicate type of a statement. The same key can sign others, such as an SBOM.
pub(crate) const PURPOSE: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    dsse_envelope: Option<Envelope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signed>,
}

#[derive(Deserialize)]
struct Signed {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    subject: Vec<Subject>,
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    digest: Digests,
}

#[derive(Deserialize)]
struct Digests {
    sha256: String,
}

/// Returns the key that signed the manifest with this digest. It verifies the signature before it
/// parses the statement.
pub(super) fn verify<'a>(
    bundle: &[u8],
    keys: &'a [PublicKey],
    digest: &str,
) -> Result<&'a PublicKey, Rejection> {
    let bundle: Bundle =
        serde_json::from_slice(bundle).map_err(|_| Rejection::Form("it is no Sigstore bundle"))?;
    let no_envelope = Rejection::Form("its bundle holds no DSSE envelope");
    let envelope = bundle.dsse_envelope.ok_or(no_envelope)?;
    if envelope.payload_type != STATEMENT {
        return Err(Rejection::Purpose(envelope.payload_type));
    }
    let not_base64 = |_| Rejection::Form("it is not base64");
    let payload = STANDARD.decode(&envelope.payload).map_err(not_base64)?;
    let message = authenticated(&envelope.payload_type, &payload);
    let mut made = Err(Rejection::Form("its envelope has no signature"));
    for signed in &envelope.signatures {
        let signature = STANDARD.decode(&signed.sig).map_err(not_base64)?;
        made = maker(keys, &message, &signature);
        if made.is_ok() {
            break;
        }
    }
    let key = made?;
    is_about(&payload, digest)?;
    Ok(key)
}

fn is_about(payload: &[u8], digest: &str) -> Result<(), Rejection> {
    let statement: Statement = serde_json::from_slice(payload)
        .map_err(|_| Rejection::Form("its statement names no manifest"))?;
    if statement.predicate_type != PURPOSE {
        return Err(Rejection::Purpose(statement.predicate_type));
    }
    let mut subjects = statement.subject.into_iter();
    let named: Vec<_> = subjects
        .by_ref()
        .map(|subject| format!("sha256:{}", subject.digest.sha256))
        .collect();
    if named.iter().any(|named| named == digest) {
        return Ok(());
    }
    let first = named.into_iter().next();
    Err(Rejection::Other(
        first.unwrap_or_else(|| "nothing".to_owned()),
    ))
}

/// Returns the signed text of an envelope: its type and its payload, each with its length.
fn authenticated(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!(
        "DSSEv1 {} {payload_type} {} ",
        payload_type.len(),
        payload.len()
    );
    [head.as_bytes(), payload].concat()
}
