//! Pure: the signature of a module as it is stored beside the module. It is verified again each
//! time it is read.

use ipu_api::guest::digest::digest_of;
use ipu_oci::cosign::{PublicKey, Signature, file_signer};
use ipu_oci::manifest::component_of;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

/// Size limit of a manifest that is stored beside a signature, in bytes. That of a component has a
/// few hundred.
const MANIFEST: usize = 64 << 10;

/// A signature, with everything that its verification needs beside the module and the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoredSignature {
    /// Of the module itself.
    File(ByteString),
    /// Of a manifest with the module, in the format of cosign 1 and 2.
    Simple {
        /// The manifest.
        manifest: ByteString,
        /// The signed payload.
        payload: ByteString,
        /// The signature in base64.
        signature: String,
    },
    /// Of a manifest with the module, in the format of cosign 3.
    Bundle {
        /// The manifest.
        manifest: ByteString,
        /// The Sigstore bundle.
        bundle: ByteString,
    },
}

impl StoredSignature {
    /// The signature of a manifest. Without its manifest, which can be too large, it does not count
    /// when it is read.
    pub(super) fn of_manifest(manifest: &[u8], signature: Signature) -> Self {
        let is_stored = manifest.len() <= MANIFEST;
        let manifest = ByteString(if is_stored {
            manifest.to_owned()
        } else {
            Vec::new()
        });
        match signature {
            Signature::Simple { payload, signature } => Self::Simple {
                manifest,
                payload: ByteString(payload),
                signature,
            },
            Signature::Bundle(bundle) => Self::Bundle {
                manifest,
                bundle: ByteString(bundle),
            },
        }
    }

    /// Parses the content of a file.
    pub(super) fn parse(file: &[u8]) -> Option<Self> {
        serde_json::from_slice(file).ok()
    }

    /// Returns the content of a file.
    pub(super) fn to_file(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has no map, whose keys could be no strings")
    }

    /// Whether this key signed the module with this digest, or a manifest with it.
    pub(super) fn is_valid(&self, module: &[u8], digest: &str, key: &PublicKey) -> bool {
        let (manifest, signature) = match self {
            Self::File(signature) => {
                return file_signer(module, &signature.0, std::slice::from_ref(key)).is_ok();
            }
            Self::Simple {
                manifest,
                payload,
                signature,
            } => {
                let (payload, signature) = (payload.0.clone(), signature.clone());
                (manifest, Signature::Simple { payload, signature })
            }
            Self::Bundle { manifest, bundle } => (manifest, Signature::Bundle(bundle.0.clone())),
        };
        let leads_to_module =
            component_of(&manifest.0).is_ok_and(|component| component.digest == digest);
        let manifest = digest_of(&manifest.0);
        let keys = std::slice::from_ref(key);
        leads_to_module && signature.verify(keys, manifest.as_str()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use ipu_oci::cosign::public_keys;
    use ipu_oci::manifest::artefact;
    use rcgen::{KeyPair, SigningKey};
    use serde_json::json;

    use super::*;

    const MODULE: &[u8] = b"a module";

    fn public(key: &KeyPair) -> PublicKey {
        let mut keys = public_keys(key.public_key_pem().as_bytes()).unwrap();
        keys.remove(0)
    }

    fn digest(bytes: &[u8]) -> String {
        digest_of(bytes).to_string()
    }

    /// The signature of a manifest, in the format of cosign 1 and 2.
    fn simple(key: &KeyPair, manifest: &[u8]) -> StoredSignature {
        let payload = json!({"critical": {
            "image": {"docker-manifest-digest": digest(manifest)},
            "type": "cosign container image signature",
        }});
        let payload = payload.to_string().into_bytes();
        let signature = STANDARD.encode(key.sign(&payload).unwrap());
        StoredSignature::of_manifest(manifest, Signature::Simple { payload, signature })
    }

    /// The same, in the format of cosign 3.
    fn bundle(key: &KeyPair, manifest: &[u8]) -> StoredSignature {
        let kind = "application/vnd.in-toto+json";
        let digests = json!({"sha256": digest(manifest).trim_start_matches("sha256:")});
        let statement = json!({
            "subject": [{"digest": digests}],
            "predicateType": "https://sigstore.dev/cosign/sign/v1",
        });
        let statement = statement.to_string();
        let length = statement.len();
        let message = format!("DSSEv1 {} {kind} {length} {statement}", kind.len());
        let signature = STANDARD.encode(key.sign(message.as_bytes()).unwrap());
        let envelope = json!({
            "payload": STANDARD.encode(&statement), "payloadType": kind,
            "signatures": [{"sig": signature}],
        });
        let bundle = json!({"dsseEnvelope": envelope}).to_string().into_bytes();
        StoredSignature::of_manifest(manifest, Signature::Bundle(bundle))
    }

    #[test]
    fn a_stored_signature_counts_for_its_key_and_its_module_only() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let manifest = artefact(MODULE, &[], &[]).manifest;
        let of_another = artefact(b"another module", &[], &[]).manifest;
        let of_file = |signed: &[u8]| StoredSignature::File(ByteString(key.sign(signed).unwrap()));
        let right = [
            of_file(MODULE),
            simple(&key, &manifest),
            bundle(&key, &manifest),
        ];
        for stored in right {
            let read = StoredSignature::parse(&stored.to_file()).unwrap();
            assert_eq!(read, stored);
            assert!(read.is_valid(MODULE, &digest(MODULE), &public(&key)));
            assert!(!read.is_valid(MODULE, &digest(MODULE), &public(&other)));
        }
        let wrong = [
            of_file(b"another module"),
            simple(&key, &of_another),
            bundle(&key, &of_another),
        ];
        for stored in wrong {
            assert!(!stored.is_valid(MODULE, &digest(MODULE), &public(&key)));
        }
        let large = json!({"layers": [], "padding": "x".repeat(MANIFEST)}).to_string();
        let StoredSignature::Simple { manifest: left, .. } = simple(&key, large.as_bytes()) else {
            panic!("it is in the format of cosign 1 and 2");
        };
        assert!(left.0.is_empty(), "it is too large");
        // A signature of one manifest beside another one.
        let StoredSignature::Bundle { bundle, .. } = bundle(&key, &of_another) else {
            panic!("it is in the format of cosign 3");
        };
        let exchanged = StoredSignature::of_manifest(&manifest, Signature::Bundle(bundle.0));
        assert!(!exchanged.is_valid(MODULE, &digest(MODULE), &public(&key)));
    }

    #[test]
    fn a_file_that_holds_no_signature_is_none() {
        for file in ["", "{}", "x", r#"{"simple": {"payload": "eA=="}}"#] {
            assert_eq!(StoredSignature::parse(file.as_bytes()), None, "{file}");
        }
    }
}
