//! Puts a kept certificate into service, and exchanges it while a server goes on serving with it.

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

use super::Keys;
use super::keep::{KeepError, Keeper};
use crate::clock;

/// How often the Secret is looked at.
pub const LOOK: Duration = Duration::from_secs(15);

/// How soon it is looked at again after a failure.
pub const AGAIN: Duration = Duration::from_secs(1);

/// Longest time that one look may take.
pub const LOOKING: Duration = Duration::from_secs(20);

/// Why a look at the certificate failed.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// There is no certificate.
    #[error("failed to keep the certificate")]
    Keep(#[source] KeepError),
    /// The certificate cannot be read.
    #[error("failed to read the certificate of the Secret {secret}")]
    Pem {
        /// Name of the Secret.
        secret: String,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// The certificate cannot be served with.
    #[error("failed to take the certificate of the Secret {secret} into service")]
    Rustls {
        /// Name of the Secret.
        secret: String,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// The API server is silent.
    #[error("failed to keep the certificate: the API server did not answer in time")]
    Late,
}

/// A certificate that a server serves with.
pub struct Serving {
    keeper: Keeper,
    keys: Keys,
    clients: Arc<dyn ClientCertVerifier>,
    tls: RustlsConfig,
}

impl Serving {
    /// The first certificate; tried until there is one. Clients need none of their own.
    pub async fn begin(keeper: Keeper) -> Self {
        Self::begin_for(keeper, Arc::new(NoClientAuth)).await
    }

    /// As [`Self::begin`], for these clients.
    pub async fn begin_for(keeper: Keeper, clients: Arc<dyn ClientCertVerifier>) -> Self {
        loop {
            let made = async {
                let keys = look(&keeper).await?;
                let tls = RustlsConfig::from_config(config(&keeper.secret, &keys, &clients)?);
                Ok::<_, ServingError>((keys, tls))
            };
            match made.await {
                Ok((keys, tls)) => {
                    return Self {
                        keeper,
                        keys,
                        clients,
                        tls,
                    };
                }
                Err(error) => warn!("{}", explain(&error)),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// What the server serves with: the one in service now, and each that takes its place.
    pub fn tls(&self) -> RustlsConfig {
        self.tls.clone()
    }

    /// The certificate as the Secret has it now, renewed where that is needed.
    pub async fn look(&self) -> Result<Keys, ServingError> {
        look(&self.keeper).await
    }

    /// Serves with `found` from now on, where that is another certificate.
    pub fn switch(&mut self, found: Keys) -> Result<(), ServingError> {
        if found != self.keys {
            let secret = &self.keeper.secret;
            let config = config(secret, &found, &self.clients)?;
            self.tls.reload_from_config(config);
            info!(secret, "a new certificate is in service");
            self.keys = found;
        }
        Ok(())
    }

    /// Keeps the certificate good, for ever.
    pub async fn keep(mut self) -> Infallible {
        loop {
            let round = match self.look().await {
                Ok(found) => self.switch(found),
                Err(error) => Err(error),
            };
            let pause = match round {
                Ok(()) => LOOK,
                Err(error) => {
                    warn!("{}", explain(&error));
                    AGAIN
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}

async fn look(keeper: &Keeper) -> Result<Keys, ServingError> {
    tokio::time::timeout(LOOKING, keeper.keys(clock::now))
        .await
        .map_err(|_| ServingError::Late)?
        .map_err(ServingError::Keep)
}

fn config(
    secret: &str,
    keys: &Keys,
    clients: &Arc<dyn ClientCertVerifier>,
) -> Result<Arc<ServerConfig>, ServingError> {
    let unreadable = |source| ServingError::Pem {
        secret: secret.to_owned(),
        source,
    };
    let chain = CertificateDer::pem_slice_iter(keys.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(keys.key.as_bytes()).map_err(unreadable)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            let builder = builder.with_client_cert_verifier(clients.clone());
            builder.with_single_cert(chain, key)
        })
        .map_err(|source| ServingError::Rustls {
            secret: secret.to_owned(),
            source,
        })?;
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
    use crate::certificates::clients::of_authority;
    use crate::certificates::issue;

    const NAME: &str = "webhooks.example.com";

    /// An authority for clients, and its certificate.
    fn authority() -> (Issuer<'static, KeyPair>, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        (Issuer::new(params, key), pem)
    }

    type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

    /// A client's certificate of an authority, and its key.
    fn client(authority: &Issuer<'static, KeyPair>) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["kube-apiserver".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, authority).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (certificate.der().clone(), key)
    }

    /// Whether a server that takes clients of this authority answers this one.
    async fn is_answered(authority: &str, identity: Option<Identity>) -> bool {
        let keys = issue::start(&[NAME.to_owned()], clock::now()).unwrap();
        let server = config("a", &keys, &of_authority(authority).unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_slice(keys.authorities.as_bytes());
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
        let ((ours, pem), (others, _)) = (authority(), authority());
        assert!(is_answered(&pem, Some(client(&ours))).await);
        assert!(!is_answered(&pem, Some(client(&others))).await);
        assert!(!is_answered(&pem, None).await);
    }
}
