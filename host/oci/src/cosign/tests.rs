//! The verdict on signatures: valid ones of the real cosign 3.1.3, and invalid ones.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use super::*;

/// The manifest that the samples are about.
const DIGEST: &str = "sha256:059c6073febd042ea00b45c30c82d3c8945928c25765954a0226ae1feb6acad0";

const PAYLOAD: &[u8] = include_bytes!("samples/payload.json");

const P384: &str = "-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEFIxo0SDXZt284d302jpxHdbmQFshJQ63
BpLNpw5XtteKRfgj9QF6u459CPzTOUDkvXRQ3fI84juRWuUTGa1I+0dcdq8UpaY1
GtQjogDyKYGyqs1kmui7DZl598PljG9J
-----END PUBLIC KEY-----
";

fn cosign() -> Vec<PublicKey> {
    public_keys(include_bytes!("samples/cosign.pub")).unwrap()
}

fn simple(payload: &[u8], signature: &str) -> Signature {
    Signature::Simple {
        payload: payload.to_owned(),
        signature: signature.to_owned(),
    }
}

/// Another author with a different key.
struct Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Self { pair, random }
    }

    fn keys(&self) -> Vec<PublicKey> {
        // The prefix of every public key on P-256.
        const HEAD: [u8; 26] = [
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
            0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        let der = [&HEAD[..], self.pair.public_key().as_ref()].concat();
        let pem = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            STANDARD.encode(der)
        );
        public_keys(pem.as_bytes()).unwrap()
    }

    fn sign(&self, message: &[u8]) -> String {
        STANDARD.encode(self.pair.sign(&self.random, message).unwrap())
    }

    fn simple(&self, payload: &Value) -> Signature {
        let payload = payload.to_string().into_bytes();
        let signature = self.sign(&payload);
        Signature::Simple { payload, signature }
    }

    fn bundle(&self, payload_type: &str, statement: &Value) -> Signature {
        let statement = statement.to_string();
        let message = format!(
            "DSSEv1 {} {payload_type} {} {statement}",
            payload_type.len(),
            statement.len()
        );
        let bundle = json!({"dsseEnvelope": {
            "payload": STANDARD.encode(&statement), "payloadType": payload_type,
            "signatures": [{"sig": STANDARD.encode("another's")}, {"sig": self.sign(message.as_bytes())}],
        }});
        Signature::Bundle(bundle.to_string().into_bytes())
    }
}

fn statement(digest: &str, purpose: &str) -> Value {
    let digest = digest.trim_start_matches("sha256:");
    json!({"subject": [{"digest": {"sha256": digest}}], "predicateType": purpose})
}

fn payload(digest: &str, purpose: &str) -> Value {
    json!({"critical": {"image": {"docker-manifest-digest": digest}, "type": purpose}})
}

#[test]
fn what_cosign_signed_counts_for_its_manifest_and_its_key_alone() {
    let bundle = Signature::Bundle(include_bytes!("samples/bundle.json").to_vec());
    let simple = simple(PAYLOAD, include_str!("samples/payload.sig"));
    let other = format!("sha256:{}", "0".repeat(64));
    for signature in [bundle, simple] {
        let keys = [Signer::new().keys(), cosign()].concat();
        let key = signature.verify(&keys, DIGEST).unwrap();
        assert_eq!(key.fingerprint(), cosign()[0].fingerprint());
        let rejected = |keys: &[PublicKey], digest| signature.verify(keys, digest).unwrap_err();
        assert_eq!(
            rejected(&cosign(), &other),
            Rejection::Other(DIGEST.to_owned())
        );
        assert_eq!(rejected(&Signer::new().keys(), DIGEST), Rejection::Key);
        assert_eq!(rejected(&[], DIGEST), Rejection::Key);
    }
}

#[test]
fn keys_of_three_kinds_are_taken() {
    for (key, signature) in [
        (
            &include_bytes!("samples/rsa.pub")[..],
            include_str!("samples/payload.rsa.sig"),
        ),
        (
            &include_bytes!("samples/ed25519.pub")[..],
            include_str!("samples/payload.ed25519.sig"),
        ),
    ] {
        let keys = public_keys(key).unwrap();
        assert!(simple(PAYLOAD, signature).verify(&keys, DIGEST).is_ok());
        let other = [PAYLOAD, b" "].concat();
        let rejected = simple(&other, signature).verify(&keys, DIGEST).unwrap_err();
        assert_eq!(rejected, Rejection::Key);
    }
}

#[test]
fn what_was_signed_for_something_else_does_not_count() {
    let signer = Signer::new();
    let keys = signer.keys();
    let sign = "https://sigstore.dev/cosign/sign/v1";
    let in_toto = "application/vnd.in-toto+json";
    let image = "cosign container image signature";
    let good = [
        signer.bundle(in_toto, &statement(DIGEST, sign)),
        signer.simple(&payload(DIGEST, image)),
    ];
    for good in good {
        assert!(good.verify(&keys, DIGEST).is_ok());
    }
    let parts = "https://spdx.dev/Document";
    let purpose = |purpose: &str| Rejection::Purpose(purpose.to_owned());
    let other = "sha256:11";
    for (signature, rejection) in [
        (
            signer.bundle(in_toto, &statement(DIGEST, parts)),
            purpose(parts),
        ),
        (
            signer.bundle("text/plain", &statement(DIGEST, sign)),
            purpose("text/plain"),
        ),
        (
            signer.bundle(in_toto, &statement(other, sign)),
            Rejection::Other(other.to_owned()),
        ),
        (
            signer.bundle(in_toto, &json!({"subject": [], "predicateType": sign})),
            Rejection::Other("nothing".to_owned()),
        ),
        (
            signer.bundle(in_toto, &json!({})),
            Rejection::Form("its statement names no manifest"),
        ),
        (
            signer.simple(&payload(DIGEST, "a letter")),
            purpose("a letter"),
        ),
        (
            signer.simple(&payload(other, image)),
            Rejection::Other(other.to_owned()),
        ),
        (
            signer.simple(&json!({})),
            Rejection::Form("its payload names no manifest"),
        ),
        (simple(PAYLOAD, "&"), Rejection::Form("it is not base64")),
        (
            Signature::Bundle(b"{".to_vec()),
            Rejection::Form("it is no Sigstore bundle"),
        ),
        (
            Signature::Bundle(b"{}".to_vec()),
            Rejection::Form("its bundle holds no DSSE envelope"),
        ),
    ] {
        assert_eq!(signature.verify(&keys, DIGEST).unwrap_err(), rejection);
    }
}

#[test]
fn each_reason_against_a_signature_is_reported_once() {
    let wrong = Signer::new().simple(&payload(DIGEST, "cosign container image signature"));
    let keys = Signer::new().keys();
    let none = Unsigned::of(Vec::new()).to_string();
    assert!(none.contains("has no signature for it"), "{none}");
    let rejections = [&wrong, &wrong].map(|wrong| wrong.verify(&keys, DIGEST).unwrap_err());
    assert_eq!(
        Unsigned::of(rejections.to_vec()).to_string(),
        "the signatures that the registry has for it do not count: it matches none of the keys; sign it \
         with one of the keys that are given, or give the key that it was signed with"
    );
}

#[test]
fn a_text_without_keys_is_refused_by_name() {
    let bad = |pem: &str| public_keys(pem.as_bytes()).unwrap_err();
    let begin = "-----BEGIN PUBLIC KEY-----\n";
    let end = "\n-----END PUBLIC KEY-----\n";
    assert_eq!(bad(""), KeyError::None);
    assert_eq!(
        bad("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        KeyError::None
    );
    assert_eq!(bad(P384), KeyError::Kind(1));
    assert_eq!(bad(&format!("{begin}AAAA{end}")), KeyError::Broken(1));
    let good = include_str!("samples/cosign.pub");
    assert_eq!(bad(&format!("{good}{begin}&{end}")), KeyError::Broken(2));
    assert_eq!(
        public_keys(format!("{good}{good}").as_bytes())
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn the_signature_of_a_file_is_in_base64_or_a_bundle_or_raw() {
    let (signer, file) = (Signer::new(), b"a module".as_slice());
    let (keys, text) = (signer.keys(), signer.sign(file));
    let bundle = json!({"messageSignature": {"signature": text}}).to_string();
    let raw = STANDARD.decode(&text).unwrap();
    let line = format!(" {text}\n");
    for signature in [line.as_bytes(), bundle.as_bytes(), &raw] {
        assert!(file_signer(file, signature, &keys).is_ok());
        let rejected = |file, keys| file_signer(file, signature, keys).unwrap_err();
        assert_eq!(rejected(b"another module", &keys), Rejection::Key);
        assert_eq!(rejected(file, &cosign()), Rejection::Key);
    }
    for (signature, reason) in [
        ("{", "it is no Sigstore bundle"),
        ("{}", "its bundle holds no signature of a file"),
        (
            r#"{"messageSignature": {"signature": "&"}}"#,
            "it is not base64",
        ),
    ] {
        let rejected = file_signer(file, signature.as_bytes(), &keys).unwrap_err();
        assert_eq!(rejected, Rejection::Form(reason));
    }
}
