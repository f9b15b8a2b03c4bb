//! Serves with a managed certificate, and reloads it without a restart.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use ipu_text::explain;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::NoClientAuth;
use rustls::server::danger::ClientCertVerifier;
use tracing::{info, warn};

use super::CertificateBundle;
use super::renewal::{CertificateManager, ManagerError};
use super::served::ServedCertificates;
use ipu_runtime::clock;

/// Period at which the certificate is checked.
pub const CHECK_PERIOD: Duration = Duration::from_secs(15);

/// Delay after a failed check.
pub const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Timeout of a check.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// Failure to check the certificate.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// There is no valid certificate.
    #[error("failed to keep the certificate")]
    Manager(#[source] ManagerError),
    /// The certificate cannot be parsed.
    #[error("failed to read the certificate of the Secret {0}")]
    Pem(String, #[source] pem::Error),
    /// The server cannot use the certificate.
    #[error("failed to use the certificate of the Secret {0}")]
    Rustls(String, #[source] rustls::Error),
    /// The API server did not answer in time.
    #[error("failed to keep the certificate: the API server did not answer in time")]
    Timeout,
}

/// The certificate of a server.
pub struct Serving {
    manager: CertificateManager,
    bundle: CertificateBundle,
    clients: Arc<dyn ClientCertVerifier>,
    tls: RustlsConfig,
    served: ServedCertificates,
}

impl Serving {
    /// Waits for the first certificate. Clients need no certificate.
    pub async fn start(manager: CertificateManager, served: ServedCertificates) -> Self {
        Self::start_with_clients(manager, Arc::new(NoClientAuth), served).await
    }

    /// As [`Self::start`], with a verifier of client certificates.
    pub async fn start_with_clients(
        manager: CertificateManager,
        clients: Arc<dyn ClientCertVerifier>,
        served: ServedCertificates,
    ) -> Self {
        loop {
            let loaded = async {
                let bundle = check(&manager).await?;
                let tls = RustlsConfig::from_config(config(&manager.secret, &bundle, &clients)?);
                Ok::<_, ServingError>((bundle, tls))
            };
            match loaded.await {
                Ok((bundle, tls)) => {
                    served.record(&manager.secret, &bundle);
                    return Self {
                        manager,
                        bundle,
                        clients,
                        tls,
                        served,
                    };
                }
                Err(error) => warn!("{}", explain(&error)),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Returns the TLS configuration of the server, which [`Self::reload`] updates.
    pub fn tls(&self) -> RustlsConfig {
        self.tls.clone()
    }

    /// Returns the certificate in the Secret, renewed if needed.
    pub async fn check(&self) -> Result<CertificateBundle, ServingError> {
        check(&self.manager).await
    }

    /// Serves with `bundle` from now on.
    pub fn reload(&mut self, bundle: CertificateBundle) -> Result<(), ServingError> {
        if bundle != self.bundle {
            let secret = &self.manager.secret;
            let config = config(secret, &bundle, &self.clients)?;
            self.tls.reload_from_config(config);
            self.served.record(secret, &bundle);
            info!(secret, "the server uses a new certificate");
            self.bundle = bundle;
        }
        Ok(())
    }

    /// Checks and reloads the certificate periodically.
    pub async fn run(mut self) -> Infallible {
        loop {
            let checked = match self.check().await {
                Ok(bundle) => self.reload(bundle),
                Err(error) => Err(error),
            };
            let delay = match checked {
                Ok(()) => CHECK_PERIOD,
                Err(error) => {
                    warn!("{}", explain(&error));
                    RETRY_DELAY
                }
            };
            tokio::time::sleep(delay).await;
        }
    }
}

/// Returns the certificate in the Secret of `manager`, renewed if needed, within the timeout of a
/// check.
pub async fn check(manager: &CertificateManager) -> Result<CertificateBundle, ServingError> {
    tokio::time::timeout(CHECK_TIMEOUT, manager.ensure(clock::now))
        .await
        .map_err(|_| ServingError::Timeout)?
        .map_err(ServingError::Manager)
}

fn config(
    secret: &str,
    bundle: &CertificateBundle,
    clients: &Arc<dyn ClientCertVerifier>,
) -> Result<Arc<ServerConfig>, ServingError> {
    let unreadable = |source| ServingError::Pem(secret.to_owned(), source);
    let chain = CertificateDer::pem_slice_iter(bundle.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(bundle.key.as_bytes()).map_err(unreadable)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            let builder = builder.with_client_cert_verifier(clients.clone());
            builder.with_single_cert(chain, key)
        })
        .map_err(|source| ServingError::Rustls(secret.to_owned(), source))?;
    // Without HTTP/2 an API server spreads its calls over the replicas.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::certificates::clients::verifier;
    use crate::certificates::issue;

    const NAME: &str = "webhooks.example.com";

    /// A CA for clients, and its certificate.
    fn client_ca() -> (Issuer<'static, KeyPair>, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        (Issuer::new(params, key), pem)
    }

    type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

    /// A client's certificate of a CA, and its key.
    fn client(ca: &Issuer<'static, KeyPair>) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["kube-apiserver".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, ca).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (certificate.der().clone(), key)
    }

    /// Whether a server that accepts clients of this CA answers this one.
    async fn is_answered(ca: &str, identity: Option<Identity>) -> bool {
        let bundle = issue::issue(&[NAME.to_owned()], clock::now()).unwrap();
        let server = config("a", &bundle, &verifier(ca).unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_slice(bundle.ca_pem.as_bytes());
        roots.add(trusted.unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let client = match identity {
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key),
            None => Ok(builder.with_no_client_auth()),
        };
        let (ours, theirs) = duplex(1 << 16);
        let serve = async {
            let mut stream = TlsAcceptor::from(server).accept(ours).await?;
            stream.write_all(b"here").await?;
            stream.shutdown().await
        };
        let ask = async {
            let connector = TlsConnector::from(Arc::new(client.unwrap()));
            let name = ServerName::try_from(NAME).unwrap();
            let mut stream = connector.connect(name, theirs).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok::<_, std::io::Error>(text)
        };
        let (served, asked) = tokio::join!(serve, ask);
        served.is_ok() && asked.is_ok_and(|text| text == "here")
    }

    #[tokio::test]
    async fn only_a_client_of_the_named_authority_is_answered() {
        let ((ours, pem), (others, _)) = (client_ca(), client_ca());
        assert!(is_answered(&pem, Some(client(&ours))).await);
        assert!(!is_answered(&pem, Some(client(&others))).await);
        assert!(!is_answered(&pem, None).await);
    }
}
