//! The controller process: the webhooks, the job reconciler and the probes, from start to shutdown.

pub mod probes;
pub mod webhooks;

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::time::Duration;

use kube::Client;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use self::probes::{Readiness, Step};
use crate::agent::explain;
use crate::certificates::keep::Keeper;
use crate::certificates::register::Registration;
use crate::certificates::service_names;
use crate::job::{self, JobSettings};
use crate::namespaces::namespaces;
use crate::policy::guests::Guests;
use crate::policy::{self, Process};
use crate::release::ReleaseOptions;
use crate::wasm::model::Slot;
use crate::wasm::{OpenError, Policies, PolicyOptions};

/// How long to wait before the job reconciler is tried again, where it could not start.
const JOBS_AGAIN: Duration = Duration::from_secs(5);

/// What the controller process is told by its command line.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// The release; the certificate's Secret is in its namespace.
    pub release: ReleaseOptions,
    /// Port of the probes.
    pub probe_port: u16,
    /// Port of the webhooks.
    pub webhook_port: u16,
    /// Name of the webhooks' Service.
    pub webhook_service: String,
    /// Name of the Secret with the webhooks' certificate.
    pub webhook_secret: String,
    /// Name of both webhook configurations.
    pub webhook_configuration: String,
    /// What an admin sets about jobs.
    pub jobs: JobSettings,
}

/// Why the controller process ended.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A signal cannot be listened to.
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),
    /// A port is taken or not allowed.
    #[error("failed to listen on port {port}; is another process using it?")]
    Listen {
        /// The port.
        port: u16,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// No client of the API server.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// The policies cannot be loaded.
    #[error("failed to load the policies")]
    Policies(#[source] OpenError),
    /// A server ended by itself.
    #[error("failed to go on serving on port {port}")]
    Serve {
        /// The port.
        port: u16,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Runs until SIGTERM or SIGINT; requests and reconciles that are under way are finished first.
pub async fn run(options: ControllerOptions) -> Result<(), ControllerError> {
    let stop = CancellationToken::new();
    stop_on_signals(&stop)?;
    let readiness = Readiness::default();
    let ended = CancellationToken::new();
    let probes = probes::router(readiness.clone(), stop.clone());
    let probes = probes::serve(listen(options.probe_port)?, probes, ended.clone());
    let probes = tokio::spawn(probes);
    let listener = listen(options.webhook_port)?;

    let client = Client::try_default()
        .await
        .map_err(|source| ControllerError::Client(Box::new(source)))?;
    let policies = Policies::open(policy_options(&options))
        .await
        .map_err(ControllerError::Policies)?;
    let guests = Guests::new(policies.clone());
    readiness.reached(Step::PoliciesLoaded);

    let keeper = Keeper {
        client: client.clone(),
        namespace: options.release.namespace.clone(),
        secret: options.webhook_secret.clone(),
        names: service_names(&options.webhook_service, &options.release.namespace),
    };
    let registration = Registration {
        client: client.clone(),
        namespace: options.release.namespace.clone(),
        configuration: options.webhook_configuration.clone(),
    };
    let (namespaces, namespace_watch) = namespaces();
    let webhooks = async {
        let asked = (guests.clone(), namespaces.clone());
        let serving = webhooks::run(listener, keeper, registration, asked, &readiness, &stop);
        let served = serving.await;
        stop.cancel();
        served
    };
    let (served, (), (), (), (), ()) = tokio::join!(
        webhooks,
        run_jobs(&client, &options.jobs, &stop),
        policies.follow(stop.clone()),
        Box::pin(policy::follow(
            client.clone(),
            &options.release,
            Process::Controller,
            guests.clone(),
            stop.clone()
        )),
        namespace_watch.follow(client.clone(), stop.clone()),
        namespaces.follow_partitions(client.clone(), stop.clone()),
    );
    served.map_err(|source| ControllerError::Serve {
        port: options.webhook_port,
        source,
    })?;
    ended.cancel();
    let probed = probes.await.unwrap_or_else(|error| Err(error.into()));
    probed.map_err(|source| ControllerError::Serve {
        port: options.probe_port,
        source,
    })?;
    info!("all requests are answered; the controller ends");
    Ok(())
}

/// Runs the job reconciler. Where it cannot start (a CRD is missing, say), the webhooks go on.
async fn run_jobs(client: &Client, settings: &JobSettings, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let Err(failure) = job::run(client.clone(), settings.clone(), stop.clone()).await else {
            return;
        };
        error!(
            "the job reconciler could not start, and is tried again: {}",
            explain(&failure)
        );
        let _ = stop
            .run_until_cancelled(tokio::time::sleep(JOBS_AGAIN))
            .await;
    }
}

fn policy_options(options: &ControllerOptions) -> PolicyOptions {
    let settings = json!({ "maxIpusPerJob": options.jobs.max_ipus_per_job });
    let slots = [Slot::Defaulting, Slot::Validation];
    options.release.policies(&slots, settings)
}

fn stop_on_signals(stop: &CancellationToken) -> Result<(), ControllerError> {
    let mut term = signal(SignalKind::terminate()).map_err(ControllerError::Signals)?;
    let mut int = signal(SignalKind::interrupt()).map_err(ControllerError::Signals)?;
    let stop = stop.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        };
        info!("{name}: ending");
        stop.cancel();
    });
    Ok(())
}

/// Listens on all addresses, IPv6 and IPv4; on IPv4 alone where the node has no IPv6.
fn listen(port: u16) -> Result<TcpListener, ControllerError> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)));
    listener
        .and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        })
        .map_err(|source| ControllerError::Listen { port, source })
}
