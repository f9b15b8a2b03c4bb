//! Several signatures of one manifest: one valid signature is enough, no matter what the others
//! are.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipu_api::guest::digest::digest_of;
use ipu_oci::cosign::public_keys;
use ipu_oci::fetch::{Signer, find, signers};
use ipu_oci::registry::Access;
use ipu_text::explain;
use rcgen::{KeyPair, SigningKey};
use serde_json::{Value, json};

use super::fake::{Content, Fake};

/// A payload of cosign for a manifest, and the layer that carries a key's signature of it.
fn signature(key: &KeyPair, digest: &str) -> (Value, Vec<u8>) {
    let payload = json!({"critical": {
        "identity": {"docker-reference": ""},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }, "optional": null});
    let payload = payload.to_string().into_bytes();
    let signed = STANDARD.encode(key.sign(&payload).unwrap());
    let layer = json!({
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
        "digest": digest_of(&payload).to_string(),
        "size": payload.len(),
        "annotations": {"dev.cosignproject.cosign/signature": signed},
    });
    (layer, payload)
}

/// The result of the registry's signatures: the fingerprints of the keys that signed, or why none
/// is valid.
async fn judged(
    keys: &[&KeyPair],
    signatures: Vec<(Value, Option<Vec<u8>>)>,
) -> Result<Vec<String>, String> {
    let pem: String = keys.iter().map(|key| key.public_key_pem()).collect();
    let keys = public_keys(pem.as_bytes()).unwrap();
    let layers: Vec<_> = signatures.iter().map(|(layer, _)| layer.clone()).collect();
    let blobs: BTreeMap<String, Vec<u8>> = signatures
        .into_iter()
        .filter_map(|(_, payload)| Some((digest_of(payload.as_ref()?).to_string(), payload?)))
        .collect();
    let fake = Fake::start(move |request| {
        if request.line.contains(".sig") {
            return Some(Json(json!({"layers": layers})).into_response());
        }
        let (_, digest) = request.line.rsplit_once('/')?;
        if request.line.contains("/referrers/") {
            return Some(StatusCode::NOT_FOUND.into_response());
        }
        Some(blobs.get(digest)?.clone().into_response())
    })
    .await;
    let registry = fake.client(Access::default());
    let found = find(&registry, &fake.reference(":1")).await.unwrap();
    let signers = signers(&registry, &found, &keys).await;
    let name = |signer: Signer<'_>| signer.key.fingerprint().to_owned();
    signers
        .map(|signers| signers.into_iter().map(name).collect())
        .map_err(|error| explain(&error))
}

#[tokio::test]
async fn one_signature_that_counts_is_enough() {
    let (key, stranger) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let digest = Content::new().digest();
    let (good, payload) = signature(&key, &digest);
    let (wrong, _) = signature(&stranger, &digest);
    let (lost, _) = signature(&key, "sha256:of something that nobody has");
    let served = |entry: &Value| (entry.clone(), Some(payload.clone()));

    let fingerprint = public_keys(key.public_key_pem().as_bytes()).unwrap()[0]
        .fingerprint()
        .to_owned();
    let beside = vec![(lost.clone(), None), served(&wrong), served(&good)];
    assert_eq!(judged(&[&key], beside).await, Ok(vec![fingerprint.clone()]));

    // When the first key is removed, the module needs no other signature.
    let other = public_keys(stranger.public_key_pem().as_bytes()).unwrap()[0]
        .fingerprint()
        .to_owned();
    let both = judged(&[&key, &stranger], vec![served(&good), served(&wrong)]).await;
    assert_eq!(both, Ok(vec![fingerprint, other]));

    let refused = judged(&[&key], vec![served(&wrong), served(&wrong)]).await;
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("do not count: it matches none of the keys;"),
        "{refused}"
    );
    let failed = judged(&[&key], vec![served(&wrong), (lost, None)]).await;
    let failed = failed.unwrap_err();
    assert!(failed.contains("does not have the blob"), "{failed}");
}

/// The requested pages of the list of referrers, if each page links to the next one.
async fn pages_asked(next: fn(usize) -> String) -> Vec<String> {
    let fake = Fake::start(move |request| {
        let (_, page) = request.line.split_once("/referrers/")?;
        let page = page
            .split_once("page=")
            .map_or(1, |(_, page)| page.parse().unwrap());
        let link = [("link", format!("<{}>; rel=\"next\"", next(page)))];
        Some((link, Json(json!({"manifests": []}))).into_response())
    })
    .await;
    let registry = fake.client(Access::default());
    let found = find(&registry, &fake.reference(":1")).await.unwrap();
    let error = explain(&signers(&registry, &found, &[]).await.unwrap_err());
    assert!(error.contains("has no signature for it"), "{error}");
    let lines = fake.requests().into_iter().map(|request| request.line);
    lines.filter(|line| line.contains("/referrers/")).collect()
}

#[tokio::test]
async fn a_list_of_referrers_is_read_to_its_end_and_no_further_than_eight_pages() {
    let asked = pages_asked(|page| format!("/v2/team/policy/referrers/x?page={}", page + 1)).await;
    assert_eq!(asked.len(), 8, "{asked:?}");
    assert!(asked[7].ends_with("page=8"), "{asked:?}");
    let elsewhere = pages_asked(|_| "http://127.0.0.1:1/v2/".to_owned()).await;
    assert_eq!(elsewhere.len(), 1, "{elsewhere:?}");
}
