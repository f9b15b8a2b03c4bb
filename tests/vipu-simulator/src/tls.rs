//! The simulated server's side of TLS: its certificate, and whether callers must have one too.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// Files of a server that speaks TLS, all PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Its certificate and those that lead to its CA.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA of its callers' certificates. Missing: callers need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// Failure to use TLS in a server.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("failed to read certificates or a key from {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The problem.
        #[source]
        source: pem::Error,
    },
    /// The CA of the callers cannot be used.
    #[error("failed to ask callers for certificates")]
    Callers(#[source] VerifierBuilderError),
    /// Certificate and key cannot be used.
    #[error("failed to use the server's certificate and key")]
    Server(#[source] rustls::Error),
}

/// Returns the acceptor of TLS connections.
pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Server)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(TlsError::Server)?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(TlsError::Callers)?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::Read {
        file: files.key.clone(),
        source,
    })?;
    let mut config = builder
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(TlsError::Server)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    found.map_err(|source| TlsError::Read {
        file: file.to_owned(),
        source,
    })
}
