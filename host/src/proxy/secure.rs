//! The proxy's port with TLS: its options, its certificate, and who may come in.

use std::sync::Arc;

use clap::Args;
use futures::future::{Either, select};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::certificates::keep::Keeper;
use crate::certificates::service_names;
use crate::certificates::serving::Serving;
use crate::release::ReleaseOptions;
use crate::rest::gate::Gate;
use crate::rest::{self, Door, Port, ServeError, Sources};

/// What the process is told of the port with TLS.
#[derive(Args, Clone, Debug)]
pub struct SecureOptions {
    /// Port of the REST with TLS, which takes IPUPartitions from whoever has a token.
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
}

/// Serves the port until it is told to stop. Where there is no certificate yet, it waits for one:
/// the other port and the partitions do not.
pub(super) async fn serve(
    port: Port,
    client: Client,
    release: &ReleaseOptions,
    audience: &str,
    sources: Sources,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    // The Service and the proxy have one name.
    let name = format!("{}-vipu-proxy", release.fullname);
    let keeper = Keeper {
        client: client.clone(),
        namespace: release.namespace.clone(),
        secret: format!("{name}-tls"),
        names: service_names(&name, &release.namespace),
    };
    let Some(serving) = stop.run_until_cancelled(Serving::begin(keeper)).await else {
        return Ok(());
    };
    let tls = serving.tls();
    let door = Door {
        sources,
        gate: Arc::new(Gate::new(client.clone(), audience)),
        client,
    };
    let served = Box::pin(port.serve_tls(rest::secure(door), tls, stop));
    match select(served, Box::pin(serving.keep())).await {
        Either::Left((served, _)) => served,
        Either::Right((never, _)) => match never {},
    }
}
