//! Pure: verifies the `cosign` signature of a manifest or a file against public keys.
//!
//! It supports two formats for a manifest: the payload of the tag `sha256-….sig` from cosign 1 and
//! 2, and the Sigstore bundle of a referrer from cosign 3. It supports signatures of keys only, not
//! of Fulcio certificates, and ignores entries of Rekor.

mod bundle;
mod file;
mod keys;
mod simple;

pub(super) use bundle::PURPOSE;
pub use file::file_signer;
use ipu_text::sanitize;
pub use keys::{KeyError, PublicKey, public_keys};

use super::EXCERPT_MAX;

/// Type of a Sigstore bundle, up to its version.
pub(super) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

/// Type of the payload of an older signature.
pub(super) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The annotation with an older signature.
pub(super) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// A signature of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// A payload, with its signature in base64.
    Simple {
        /// The signed payload.
        payload: Vec<u8>,
        /// The signature.
        signature: String,
    },
    /// A Sigstore bundle, as JSON.
    Bundle(Vec<u8>),
}

/// Reason why a signature does not count for a manifest or a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// It is not from one of the keys.
    #[error("it matches none of the keys")]
    Key,
    /// It is about another manifest.
    #[error("it is about {}", sanitize(.0, EXCERPT_MAX))]
    Other(String),
    /// It is an attestation for another purpose.
    #[error("its type is {:?}, which is not a signature of an artefact", sanitize(.0, EXCERPT_MAX))]
    Purpose(String),
    /// Its format is invalid.
    #[error("{0}")]
    Form(&'static str),
}

/// Reason why a module is unsigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// It has no signature.
    #[error("the registry has no signature for it; sign it with `cosign sign --key`")]
    None,
    /// None of its signatures counts.
    #[error("{}", rejected(.0))]
    Rejected(Vec<Rejection>),
    /// Its ConfigMap has no signature.
    #[error(
        "the ConfigMap has no key {0:?}; sign the module with `cosign sign-blob --key`, and put the signature there"
    )]
    NoFile(String),
    /// The signature in its ConfigMap does not count.
    #[error(
        "the signature with the key {0:?} of the ConfigMap does not count: {1}; sign the module with one of the \
         keys that are given, or give the key that it was signed with"
    )]
    File(String, Rejection),
}

impl Signature {
    /// Returns the key that signed the manifest with this digest.
    pub fn verify<'a>(
        &self,
        keys: &'a [PublicKey],
        digest: &str,
    ) -> Result<&'a PublicKey, Rejection> {
        match self {
            Self::Simple { payload, signature } => simple::verify(payload, signature, keys, digest),
            Self::Bundle(bundle) => bundle::verify(bundle, keys, digest),
        }
    }
}

impl Unsigned {
    /// Combines the reasons of all rejected signatures.
    pub(super) fn of(rejections: Vec<Rejection>) -> Self {
        if rejections.is_empty() {
            Self::None
        } else {
            Self::Rejected(rejections)
        }
    }
}

fn rejected(rejections: &[Rejection]) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for rejection in rejections.iter().map(ToString::to_string) {
        if !reasons.contains(&rejection) {
            reasons.push(rejection);
        }
    }
    reasons.truncate(3);
    let (those, verb) = match rejections.len() {
        1 => ("the signature", "does"),
        _ => ("the signatures", "do"),
    };
    format!(
        "{those} that the registry has for it {verb} not count: {}; sign it with one of the keys that are \
         given, or give the key that it was signed with",
        reasons.join("; ")
    )
}

#[cfg(test)]
mod tests;
