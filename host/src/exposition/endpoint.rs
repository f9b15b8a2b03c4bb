//! Serves the metrics over TLS to clients with a token and the right to `get /metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ipu_ports::certificates::Source;
use ipu_ports::certificates::renewal::CertificateManager;
use ipu_ports::certificates::served::ServedCertificates;
use ipu_ports::metrics::Refused;
use ipu_ports::serve::{Port, ServeError};
use ipu_rest::Caller;
use ipu_rest::authorizer::{Authorizer, Permission};
use ipu_rest::problem::{Kind, Problem};
use ipu_runtime::release::ReleaseOptions;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::Exposed;

/// Path of the metrics.
pub const PATH: &str = "/metrics";

/// OpenMetrics, which each Prometheus since 2.5 requests, contains the exemplars. It is also the
/// default for other clients, because it is readable text.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Manages the operator's certificate for the controller's metrics: in the Secret `<service>-tls`,
/// for the names of their Service.
pub fn certificate_manager(
    client: Client,
    release: &ReleaseOptions,
    source: Source,
) -> CertificateManager {
    let service = format!("{}-controller-manager-metrics", release.fullname);
    let secret = format!("{service}-tls");
    CertificateManager::of_release(client, release, &service, secret, source)
}

/// Serves the controller's metrics on a separate port until `stop`. It waits until there is a
/// certificate; nothing else waits for that.
pub async fn of_controller(
    port: Port,
    (manager, served): (CertificateManager, ServedCertificates),
    exposed: Exposed,
    limits: (&'static str, Refused),
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let routes = router(exposed, manager.client.clone(), limits);
    port.serve_managed(routes, manager, served, stop).await
}

/// The route of the metrics, within the limits of the REST.
pub fn router(exposed: Exposed, client: Client, limits: (&'static str, Refused)) -> Router {
    let authorizer = Arc::new(Authorizer::of_pods(client));
    let routes = Router::new().route(PATH, get(read));
    ipu_rest::with_limits(routes.with_state((exposed, authorizer)), limits)
}

async fn read(
    State((exposed, authorizer)): State<(Exposed, Arc<Authorizer>)>,
    caller: Caller,
) -> Result<Response, Problem> {
    authorizer
        .authorize(&caller, Permission::Read(PATH))
        .await?;
    let text = exposed.text().await.map_err(|_| {
        let detail = "the metrics could not be written; try again";
        Problem::new(Kind::Unavailable, detail)
    })?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
