//! Pure: whether a signature of `cosign` says that a manifest is what the holder of a key signed.
//!
//! Two forms are known: the payload of the tag `sha256-….sig`, which cosign 1 and 2 write, and the
//! Sigstore bundle of an artefact that refers to the manifest, which cosign 3 writes. Only signatures
//! of keys are: those of Fulcio's certificates, and what Rekor knows of them, are not looked at.

mod bundle;
mod keys;
mod simple;

pub(super) use bundle::PURPOSE;
pub use keys::{KeyError, PublicKey, public_keys};

/// Type of a Sigstore bundle, up to its version.
pub(super) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

/// Type of the payload of an older signature.
pub(super) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The annotation in which an older signature stands.
pub(super) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// A signature that a registry has for a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// A payload, and base64 of its signature.
    Simple {
        /// What was signed.
        payload: Vec<u8>,
        /// By what.
        signature: String,
    },
    /// A Sigstore bundle, as JSON.
    Bundle(Vec<u8>),
}

/// Why a signature says nothing for a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// None of the keys made it.
    #[error("none of the keys made it")]
    Key,
    /// It is about another manifest.
    #[error("it is about {0}")]
    Other(String),
    /// It was made for something else than to say whose the manifest is.
    #[error("it says {0:?}, which is no signature of an artefact")]
    Purpose(String),
    /// It is not in the form that it should have.
    #[error("{0}")]
    Form(&'static str),
}

/// Why no signature was found that counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// There is none.
    #[error("the registry has no signature for it; sign it with `cosign sign --key`")]
    None,
    /// None of them counts.
    #[error("{}", rejected(.0))]
    Rejected(Vec<Rejection>),
}

impl Signature {
    /// The key that signed the manifest of this digest with it.
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
    /// Why it is unsigned, by what each of its signatures was rejected for.
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
