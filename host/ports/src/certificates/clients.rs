//! Verifies client certificates against the CA that an admin configures.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};

/// Error of an invalid client CA.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// It is not PEM.
    #[error("the client CA is not PEM; give one or more blocks BEGIN CERTIFICATE")]
    Pem(#[source] pem::Error),
    /// It has no certificate.
    #[error("the client CA holds no certificate; give one or more blocks BEGIN CERTIFICATE")]
    Empty,
    /// A certificate is invalid.
    #[error("the client CA holds something that is no certificate")]
    Certificate(#[source] rustls::Error),
    /// The verifier cannot be created.
    #[error("the client CA cannot be used")]
    Verifier(#[source] VerifierBuilderError),
}

/// Creates the verifier of clients for the CA certificates in `pem`. The handshake refuses clients
/// without a certificate.
pub fn verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, ClientCaError> {
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
            assert!(verifier(pem).is_err(), "{pem}");
        }
        let empty = verifier("").map(drop).unwrap_err().to_string();
        assert!(empty.contains("BEGIN CERTIFICATE"), "{empty}");
    }
}
