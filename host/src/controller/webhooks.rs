//! Serves the webhooks over TLS, with a certificate that changes while they serve.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use hyper_util::rt::TokioTimer;
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::probes::{Readiness, Step};
use crate::agent::explain;
use crate::certificates::Keys;
use crate::certificates::keep::{KeepError, Keeper};
use crate::wasm::Policies;
use crate::webhook::server::router;

/// How often the Secret and the webhook configurations are looked at.
const LOOK: Duration = Duration::from_secs(15);

/// How soon they are looked at again after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// Longest time that one look may take.
const LOOKING: Duration = Duration::from_secs(20);

/// How long new connections are still taken at the end: an API server hears a little late that this
/// replica is no longer ready.
const LAME: Duration = Duration::from_millis(500);

/// How long requests that are under way may take at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// Longest time without a request on one connection. It is longer than the 90 s after which an API
/// server closes an idle connection itself, so that it never sends into one that is being closed.
const IDLE: Duration = Duration::from_mins(2);

/// Why a round of keeping the certificate failed.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("failed to keep the webhooks' certificate")]
    Keep(#[source] KeepError),
    #[error("failed to use the webhooks' certificate")]
    Tls(#[source] TlsError),
    #[error("failed to keep the webhooks registered: the API server did not answer in time")]
    Late,
}

/// Why a certificate cannot be served with.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    #[error("failed to read it")]
    Pem(#[source] pem::Error),
    #[error("failed to take it into service")]
    Rustls(#[source] rustls::Error),
}

/// Serves on `listener` until `stop`, then answers what is under way.
pub async fn run(
    listener: TcpListener,
    keeper: Keeper,
    policies: Policies,
    readiness: &Readiness,
    stop: &CancellationToken,
) -> io::Result<()> {
    let Some((keys, tls)) = stop.run_until_cancelled(first(&keeper)).await else {
        return Ok(());
    };
    let handle = Handle::new();
    let mut server = axum_server::from_tcp_rustls(listener, tls.clone())?.handle(handle.clone());
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE);
    readiness.reached(Step::WebhooksServing);
    let ending = async {
        let rounds = keep(&keeper, keys, &tls, readiness);
        let _ = stop.run_until_cancelled(rounds).await;
        tokio::time::sleep(LAME).await;
        handle.graceful_shutdown(Some(DRAIN));
    };
    let serving = server.serve(router(policies).into_make_service());
    let (served, ()) = tokio::join!(serving, ending);
    served
}

/// The first certificate; tried until there is one.
async fn first(keeper: &Keeper) -> (Keys, RustlsConfig) {
    loop {
        let made = async {
            let keys = look(keeper).await?;
            let tls = config(&keys).map_err(RoundError::Tls)?;
            Ok::<_, RoundError>((keys, RustlsConfig::from_config(tls)))
        };
        match made.await {
            Ok(ready) => return ready,
            Err(error) => warn!("{}", explain(&error)),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Keeps certificate and caBundles right, for ever.
async fn keep(keeper: &Keeper, mut keys: Keys, tls: &RustlsConfig, readiness: &Readiness) {
    let mut complaint = None;
    loop {
        let pause = match round(keeper, &mut keys, tls).await {
            Ok(()) => {
                readiness.reached(Step::AuthorityKnown);
                own(keeper, &mut complaint).await;
                LOOK
            }
            Err(error) => {
                warn!("{}", explain(&error));
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn round(keeper: &Keeper, keys: &mut Keys, tls: &RustlsConfig) -> Result<(), RoundError> {
    let found = look(keeper).await?;
    // Trust first: the API server must know the authority before the certificate is used.
    tokio::time::timeout(LOOKING, keeper.tell(&found.authorities))
        .await
        .map_err(|_| RoundError::Late)?
        .map_err(RoundError::Keep)?;
    if found != *keys {
        tls.reload_from_config(config(&found).map_err(RoundError::Tls)?);
        info!("the webhooks serve with a new certificate");
        *keys = found;
    }
    Ok(())
}

/// Gives the webhook configurations an owner. The webhooks work without one, so that where an admin
/// left out the right to do so, it is said once and nothing waits for it.
async fn own(keeper: &Keeper, said: &mut Option<String>) {
    let owned = tokio::time::timeout(LOOKING, keeper.own()).await;
    let complaint = match owned {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(explain(&error)),
        Err(_) => Some(explain(&RoundError::Late)),
    };
    if let Some(complaint) = &complaint
        && said.as_ref() != Some(complaint)
    {
        warn!("{complaint}");
    }
    *said = complaint;
}

async fn look(keeper: &Keeper) -> Result<Keys, RoundError> {
    tokio::time::timeout(LOOKING, keeper.keys(Timestamp::now()))
        .await
        .map_err(|_| RoundError::Late)?
        .map_err(RoundError::Keep)
}

fn config(keys: &Keys) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(keys.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(TlsError::Pem)?;
    let key = PrivateKeyDer::from_pem_slice(keys.key.as_bytes()).map_err(TlsError::Pem)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Rustls)?;
    // Without HTTP/2 an API server spreads its calls over the replicas.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
