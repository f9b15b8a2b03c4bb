//! The proxy's port with TLS: its options, its certificate, and its authorization.

use std::sync::Arc;

use clap::Args;
use ipu_ports::certificates::Source;
use ipu_ports::certificates::renewal::CertificateManager;
use ipu_ports::limits::SECURE_REST;
use ipu_ports::serve::{Port, ServeError};
use ipu_rest::authorizer::Authorizer;
use ipu_rest::{SecureState, Sources};
use ipu_runtime::release::ReleaseOptions;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::exposition::{self, Exposed, Metrics};

/// Options of the port with TLS.
#[derive(Args, Clone, Debug)]
pub struct SecureOptions {
    /// Port of the REST API with TLS, which accepts IPUPartitions from clients with a token.
    #[arg(long, env = "IPU_OPERATOR_SECURE_PORT", default_value_t = 8443)]
    pub secure_port: u16,
    /// Audience that tokens for that port must have.
    #[arg(
        long,
        env = "IPU_OPERATOR_AUDIENCE",
        default_value = "ipu-operator",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub audience: String,
    /// Issuer of the certificate of that port.
    #[arg(
        long,
        env = "IPU_OPERATOR_CERTIFICATE",
        value_enum,
        default_value = "made"
    )]
    pub certificate: Source,
    /// Name of the Secret with the certificate [default: <fullname>-vipu-proxy-tls].
    #[arg(long, env = "IPU_OPERATOR_CERTIFICATE_SECRET")]
    pub certificate_secret: Option<String>,
}

/// Manages the certificate of the port, for the names of the proxy's Service. Without a name, the
/// Secret is `<service>-tls`.
pub fn certificate_manager(
    client: Client,
    release: &ReleaseOptions,
    source: Source,
    secret: Option<String>,
) -> CertificateManager {
    // The Service and the proxy have the same name.
    let service = format!("{}-vipu-proxy", release.fullname);
    let secret = secret.unwrap_or_else(|| format!("{service}-tls"));
    CertificateManager::of_release(client, release, &service, secret, source)
}

/// Serves the port, with the metrics and the REST, until `stop`. It waits until there is a
/// certificate; the other port and the partitions do not.
pub(super) async fn serve(
    port: Port,
    client: Client,
    release: &ReleaseOptions,
    options: &SecureOptions,
    (sources, exposed, metrics): (Sources, Exposed, &Metrics),
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let (source, secret) = (options.certificate, options.certificate_secret.clone());
    let manager = certificate_manager(client.clone(), release, source, secret);
    let state = SecureState {
        sources,
        authorizer: Arc::new(Authorizer::new(client.clone(), &options.audience)),
        scope: release.scope.clone(),
        conflicts: metrics.conflicts.clone(),
        client: client.clone(),
    };
    let refused = &metrics.refused;
    let limits = (SECURE_REST.port, refused.clone());
    let measured = exposition::endpoint::router(exposed, client, limits);
    let routes = ipu_rest::secure(state, refused.clone()).merge(measured);
    let served = metrics.certificates.clone();
    port.serve_managed(routes, manager, served, stop).await
}
