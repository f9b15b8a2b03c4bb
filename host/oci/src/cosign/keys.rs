//! Pure: public keys in the format of `cosign generate-key-pair` and openssl.

use ipu_api::guest::digest::digest_of;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::Rejection;

/// A public key for signatures.
#[derive(Clone, Debug)]
pub struct PublicKey {
    algorithm: Algorithm,
    bytes: Vec<u8>,
    fingerprint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    EcdsaP256,
    Ed25519,
    Rsa,
}

/// Reason why a text has no valid keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It has no public key.
    #[error(
        "it holds no public key in PEM (-----BEGIN PUBLIC KEY-----), which \
         `cosign generate-key-pair` writes into cosign.pub"
    )]
    None,
    /// A key is invalid.
    #[error("its key {0} cannot be read")]
    Broken(usize),
    /// A key has an unsupported type.
    #[error("its key {0} is neither ECDSA on P-256, nor Ed25519, nor RSA")]
    Kind(usize),
}

impl PublicKey {
    /// Returns the SHA-256 of the key.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether a signature of this message is valid.
    pub(super) fn made(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self.algorithm {
            Algorithm::EcdsaP256 => &ECDSA_P256_SHA256_ASN1,
            Algorithm::Ed25519 => &ED25519,
            Algorithm::Rsa => &RSA_PKCS1_2048_8192_SHA256,
        };
        let key = UnparsedPublicKey::new(algorithm, &self.bytes);
        key.verify(message, signature).is_ok()
    }
}

/// Parses the keys of a PEM text.
pub fn public_keys(pem: &[u8]) -> Result<Vec<PublicKey>, KeyError> {
    let mut keys = Vec::new();
    for (number, section) in (1..).zip(SubjectPublicKeyInfoDer::pem_slice_iter(pem)) {
        let der = section.map_err(|_| KeyError::Broken(number))?;
        keys.push(key(&der, number)?);
    }
    if keys.is_empty() {
        return Err(KeyError::None);
    }
    Ok(keys)
}

/// Returns the first key for which a signature of this message is valid.
pub(super) fn maker<'a>(
    keys: &'a [PublicKey],
    message: &[u8],
    signature: &[u8],
) -> Result<&'a PublicKey, Rejection> {
    let made = |key: &&PublicKey| key.made(message, signature);
    keys.iter().find(made).ok_or(Rejection::Key)
}

fn key(der: &[u8], number: usize) -> Result<PublicKey, KeyError> {
    let Ok((rest, info)) = SubjectPublicKeyInfo::from_der(der) else {
        return Err(KeyError::Broken(number));
    };
    if !rest.is_empty() {
        return Err(KeyError::Broken(number));
    }
    let kind = &info.algorithm.algorithm;
    let curve = info.algorithm.parameters.as_ref();
    let is_p256 = curve.is_some_and(|curve| curve.as_oid().is_ok_and(|oid| oid == OID_EC_P256));
    let algorithm = if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY && is_p256 {
        Algorithm::EcdsaP256
    } else if *kind == OID_SIG_ED25519 {
        Algorithm::Ed25519
    } else if *kind == OID_PKCS1_RSAENCRYPTION {
        Algorithm::Rsa
    } else {
        return Err(KeyError::Kind(number));
    };
    Ok(PublicKey {
        algorithm,
        bytes: info.subject_public_key.data.into_owned(),
        fingerprint: digest_of(der).to_string(),
    })
}
