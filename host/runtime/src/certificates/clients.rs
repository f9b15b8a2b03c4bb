//! Whom a port takes for one of its clients: whoever has a certificate of an authority that an admin names.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};

/// Why an authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// It is no PEM.
    #[error("the client CA is not PEM; give one or more blocks BEGIN CERTIFICATE")]
    Pem(#[source] pem::Error),
    /// It holds no certificate.
    #[error("the client CA holds no certificate; give one or more blocks BEGIN CERTIFICATE")]
    Empty,
    /// A certificate in it cannot be read.
    #[error("the client CA holds something that is no certificate")]
    Certificate(#[source] rustls::Error),
    /// Nothing can be checked against it.
    #[error("the client CA cannot be used")]
    Verifier(#[source] VerifierBuilderError),
}

/// Checks clients against the authorities in `pem`: whoever has no certificate of theirs is refused in the handshake.
pub fn of_authority(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, ClientCaError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(ClientCaError::Pem)?;
        roots.add(certificate).map_err(ClientCaError::Certificate)?;
    }
    if roots.is_empty() {
        return Err(ClientCaError::Empty);
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(ClientCaError::Verifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_cannot_be_used_says_what_to_give() {
        let block = |what| format!("-----BEGIN {what}-----\nAAAA\n-----END {what}-----\n");
        for pem in ["", "nothing", &block("PUBLIC KEY"), &block("CERTIFICATE")] {
            assert!(of_authority(pem).is_err(), "{pem}");
        }
        let empty = of_authority("").map(drop).unwrap_err().to_string();
        assert!(empty.contains("BEGIN CERTIFICATE"), "{empty}");
    }
}
