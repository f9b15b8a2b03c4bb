//! Serves the webhooks over TLS, and reloads the certificate while they run.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use ipu_ports::certificates::registration::{Registration, RegistrationError};
use ipu_ports::certificates::renewal::CertificateManager;
use ipu_ports::certificates::served::ServedCertificates;
use ipu_ports::certificates::serving::{CHECK_PERIOD, RETRY_DELAY, Serving, ServingError};
use ipu_ports::serve::{Port, ServeError};
use ipu_text::explain;
use rustls::server::danger::ClientCertVerifier;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::probes::{Readiness, Step};

/// Delay before the port is closed. API servers learn with a delay that this replica is not ready.
const SHUTDOWN_DELAY: Duration = Duration::from_millis(500);

/// Failure of a check of the webhooks' certificate.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("failed to serve the webhooks")]
    Serving(#[source] ServingError),
    #[error("failed to keep the webhooks registered")]
    Register(#[source] RegistrationError),
}

/// Serves these routes on `port` to these clients until `stop`, and then finishes the requests in
/// progress.
pub async fn run(
    port: Port,
    (manager, clients, served): (
        CertificateManager,
        Arc<dyn ClientCertVerifier>,
        ServedCertificates,
    ),
    registration: Registration,
    routes: Router,
    readiness: &Readiness,
    stop: &CancellationToken,
) -> Result<(), ServeError> {
    let begun = Serving::start_with_clients(manager, clients, served);
    let Some(mut serving) = stop.run_until_cancelled(begun).await else {
        return Ok(());
    };
    let closing = CancellationToken::new();
    let served = port.serve_tls(routes, serving.tls(), closing.clone());
    readiness.reached(Step::WebhooksServing);
    let ending = async {
        let rounds = maintain(&mut serving, &registration, readiness);
        let _ = stop.run_until_cancelled(rounds).await;
        tokio::time::sleep(SHUTDOWN_DELAY).await;
        closing.cancel();
    };
    let (served, ()) = tokio::join!(served, ending);
    served
}

/// Maintains the certificate and the caBundles. It never returns.
async fn maintain(serving: &mut Serving, registration: &Registration, readiness: &Readiness) {
    let mut complaint = None;
    loop {
        let pause = match round(serving, registration).await {
            Ok(()) => {
                readiness.reached(Step::CaRegistered);
                registration.own(&mut complaint).await;
                CHECK_PERIOD
            }
            Err(error) => {
                warn!("{}", explain(&error));
                RETRY_DELAY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn round(serving: &mut Serving, registration: &Registration) -> Result<(), RoundError> {
    let found = serving.check().await.map_err(RoundError::Serving)?;
    // CA first: the API server must have the CA before the server uses the certificate.
    let registered = registration.ensure_ca_bundles(&found.ca_pem).await;
    registered.map_err(RoundError::Register)?;
    serving.reload(found).map_err(RoundError::Serving)
}
