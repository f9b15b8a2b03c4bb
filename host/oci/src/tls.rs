//! The TLS configuration for registries: the trusted CAs.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// Reason why a text has no CA certificates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaError {
    /// There is no certificate in it.
    #[error("it holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    None,
    /// A certificate is broken.
    #[error("its certificate {0} cannot be read")]
    Broken(usize),
}

/// Builds the configuration with these CA certificates (PEM) alone, or by default with those of the
/// system and of Mozilla. The image has no system certificates.
pub(super) fn config(ca_pem: Option<&[u8]>) -> Result<ClientConfig, CaError> {
    let roots = match ca_pem {
        Some(pem) => given(pem)?,
        None => public(),
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has what the default versions need");
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn given(pem: &[u8]) -> Result<RootCertStore, CaError> {
    let mut roots = RootCertStore::empty();
    for (number, certificate) in (1..).zip(CertificateDer::pem_slice_iter(pem)) {
        let certificate = certificate.map_err(|_| CaError::Broken(number))?;
        let added = roots.add(certificate);
        added.map_err(|_| CaError::Broken(number))?;
    }
    if roots.is_empty() {
        return Err(CaError::None);
    }
    Ok(roots)
}

fn public() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(TLS_SERVER_ROOT_CERTS.iter().cloned());
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cas_are_read_or_named_as_broken() {
        let begin = "-----BEGIN CERTIFICATE-----";
        let end = "-----END CERTIFICATE-----";
        assert_eq!(given(b"").unwrap_err(), CaError::None);
        let broken = format!("{begin}\nAAAA\n{end}\n");
        assert_eq!(given(broken.as_bytes()).unwrap_err(), CaError::Broken(1));
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::new(vec!["r.io".to_owned()]).unwrap();
        let pem = made.self_signed(&key).unwrap().pem();
        assert_eq!(given(pem.as_bytes()).unwrap().len(), 1);
        let second = given(format!("{pem}{broken}").as_bytes()).unwrap_err();
        assert_eq!(second, CaError::Broken(2));
    }

    #[test]
    fn without_cas_those_of_mozilla_are_used() {
        assert!(public().len() >= TLS_SERVER_ROOT_CERTS.len());
    }
}
