//! Pure: verifies a certificate as a client of the operator does.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;

use super::CertificateBundle;

/// Verifies the certificate for each name, like a client that trusts its CA.
pub(super) fn verify(
    bundle: &CertificateBundle,
    names: &[String],
    at: Timestamp,
) -> Result<(), String> {
    let chain = certificates(&bundle.certificate, "certificate")?;
    let (leaf, intermediates) = chain.split_first().ok_or("the certificate is empty")?;
    let key = PrivateKeyDer::from_pem_slice(bundle.key.as_bytes())
        .map_err(|error| format!("the private key cannot be read: {error}"))?;
    let provider = Arc::new(ring::default_provider());
    CertifiedKey::from_der(chain.clone(), key, &provider)
        .map_err(|error| format!("certificate and private key do not fit: {error}"))?;

    let mut roots = RootCertStore::empty();
    for ca in certificates(&bundle.ca_pem, "CA")? {
        // rustls ignores the dates of a CA, which an API server checks.
        if !is_valid_at(&ca, at) {
            continue;
        }
        roots
            .add(ca)
            .map_err(|error| format!("the CA cannot be used: {error}"))?;
    }
    let server_verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| format!("the CA cannot be used: {error}"))?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(
        u64::try_from(at.as_second()).unwrap_or_default(),
    ));
    for name in names {
        let server = ServerName::try_from(name.as_str())
            .map_err(|_| format!("{name:?} is not a DNS name"))?;
        server_verifier
            .verify_server_cert(leaf, intermediates, &server, &[], at)
            .map_err(|error| format!("it would not be accepted for {name}: {error}"))?;
    }
    Ok(())
}

fn is_valid_at(ca: &CertificateDer<'_>, at: Timestamp) -> bool {
    x509_parser::parse_x509_certificate(ca).is_ok_and(|(_, parsed)| {
        let validity = parsed.validity();
        (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&at.as_second())
    })
}

fn certificates(pem: &str, kind: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the {kind} cannot be read: {error}"))
}
