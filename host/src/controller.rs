//! The controller process: the webhooks, the reconcilers of jobs, native Pods and Workloads, and
//! the probes, from start to shutdown.

pub mod existing;
pub mod jobs;
mod options;
pub mod probes;
pub mod webhooks;

use std::sync::Arc;

use ipu_admission::callers::Callers;
use ipu_admission::pod_trial::PodTrial;
use ipu_admission::scale::StoredJobs;
use ipu_admission::server::router;
use ipu_api::ipupolicy::Hook;
use ipu_api::queueing;
use ipu_guest_host::{GuestHost, GuestHostOptions, OpenError};
use ipu_jobs::delivery::Mountable;
use ipu_jobs::{JobSettings, trial};
use ipu_kueue::KueueSettings;
use ipu_pods::NativePodSettings;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::{NamespaceWatch, Namespaces, namespaces};
use ipu_ports::certificates::Source;
use ipu_ports::certificates::clients::{self, ClientCaError};
use ipu_ports::certificates::registration::Registration;
use ipu_ports::certificates::renewal::CertificateManager;
use ipu_ports::limits::{METRICS, PROBES, WEBHOOKS};
use ipu_ports::serve::{Port, ServeError};
use ipu_runtime::dry_run::DryRuns;
use ipu_runtime::lease;
use ipu_runtime::release::{Process, ReleaseOptions};
use ipu_runtime::scope::conflicts::ConflictWatch;
use ipu_runtime::served_group::{ServedGroup, ServedGroupWatch, served_group};
use ipu_runtime::telemetry::level::LogLevel;
use kube::Client;
use rustls::server::NoClientAuth;
use rustls::server::danger::ClientCertVerifier;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::existing::ExistingReviewer;
use self::jobs::Reconcilers;
use self::probes::{Readiness, Step};
use crate::exposition::{self, Metrics};
use crate::shutdown;

pub use self::options::{ControllerOptions, Delivery};

/// Reason for the end of the controller process.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The process cannot listen for a signal.
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),
    /// The API server cannot be identified among the callers.
    #[error("failed to read the CA of the webhooks' clients")]
    ClientCa(#[source] ClientCaError),
    /// No client of the API server could be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// The policies cannot be loaded.
    #[error("failed to load the policies")]
    GuestHost(#[source] OpenError),
    /// A port cannot be served.
    #[error("failed to serve the {0}")]
    Serve(&'static str, #[source] ServeError),
}

/// Adds the purpose of a port to its error.
fn serving(what: &'static str) -> impl Fn(ServeError) -> ControllerError {
    move |source| ControllerError::Serve(what, source)
}

impl ControllerOptions {
    fn clients(&self) -> Result<Arc<dyn ClientCertVerifier>, ControllerError> {
        match &self.webhook_client_ca {
            Some(pem) => clients::verifier(pem).map_err(ControllerError::ClientCa),
            None => Ok(Arc::new(NoClientAuth)),
        }
    }

    fn reconcilers<'a>(
        &self,
        jobs: &'a JobSettings,
        kueue: ServedGroup,
        dry_runs: DryRuns,
        mountable: Mountable,
        metrics: &'a Metrics,
    ) -> Reconcilers<'a> {
        let queued = KueueSettings {
            jobs: jobs.clone(),
            has_native_pods: self.native_pods,
        };
        Reconcilers {
            jobs,
            native_pods: self.native_pods.then(|| NativePodSettings {
                scope: jobs.scope.clone(),
                instance: jobs.instance.clone(),
                lost_node: jobs.lost_node,
                start_timeout: jobs.pods.start_timeout,
                max_ipus: Some(jobs.max_ipus_per_job),
            }),
            kueue: self.kueue.then_some((queued, kueue)),
            agent_probes: self.agent_probes(),
            mountable,
            dry_runs,
            metrics,
        }
    }

    /// Returns what tries the Pods of admitted jobs.
    fn pod_trial(&self, client: &Client, dry_runs: DryRuns, mountable: Mountable) -> PodTrial {
        let settings = self.jobs().pods;
        PodTrial::new(client.clone(), dry_runs, move |job| {
            trial::pods(job, &mountable.chosen(&settings))
        })
    }

    fn reviewer(
        &self,
        client: &Client,
        metrics: &Metrics,
        active: &ActivePolicies,
        namespaces: &Namespaces,
    ) -> ExistingReviewer {
        ExistingReviewer {
            client: client.clone(),
            scope: self.reviewed_scope(),
            has_native_pods: self.native_pods,
            active: active.clone(),
            namespaces: namespaces.clone(),
            leading: metrics.policies.clone(),
        }
    }

    /// Returns how the port identifies the API server among the callers.
    fn callers(&self) -> Callers {
        match self.webhook_client_ca {
            Some(_) => Callers::certified(),
            None => Callers::unknown(),
        }
    }

    fn certificate_manager(&self, client: &Client) -> CertificateManager {
        let (service, secret) = (self.webhook_service(), self.webhook_secret());
        let source = self.webhook_certificate;
        CertificateManager::of_release(client.clone(), &self.release, &service, secret, source)
    }

    /// A given certificate is for the names of the webhooks, and there is no other.
    fn metrics_certificate_manager(&self, client: &Client) -> CertificateManager {
        match self.webhook_certificate {
            source @ (Source::Made | Source::Issued) => {
                exposition::endpoint::certificate_manager(client.clone(), &self.release, source)
            }
            Source::Given => self.certificate_manager(client),
        }
    }

    /// Serves the metrics until `stop`.
    async fn serve_metrics(
        &self,
        port: Port,
        client: &Client,
        (metrics, guests): (&Metrics, ActivePolicies),
        stop: &CancellationToken,
    ) -> Result<(), ServeError> {
        let manager = self.metrics_certificate_manager(client);
        let manager = (manager, metrics.certificates.clone());
        let exposed = metrics.of_controller(guests);
        let limits = (METRICS.port, metrics.refused.clone());
        exposition::endpoint::of_controller(port, manager, exposed, limits, stop.clone()).await
    }

    fn registration(&self, client: &Client) -> Registration {
        Registration {
            client: client.clone(),
            namespace: self.release.namespace.clone(),
            configuration: self.release.configuration().to_owned(),
            ca_bundles: self.webhook_ca_bundle,
            manages_owners: self.webhook_owner,
        }
    }
}

/// Runs until SIGTERM or SIGINT, and then finishes the requests and reconciles in progress.
pub async fn run(options: ControllerOptions, log: LogLevel) -> Result<(), ControllerError> {
    let stop = CancellationToken::new();
    shutdown::on_signals(&stop).map_err(ControllerError::Signals)?;
    let readiness = Readiness::default();
    let ended = CancellationToken::new();
    let (metrics, conflicts) = Metrics::of_release(&options.release);
    let probes = Port::listen(options.probe_port, PROBES, &metrics.refused);
    let probes = probes.map_err(serving("probes"))?;
    let routes = probes::router(readiness.clone(), stop.clone());
    let probed = tokio::spawn(probes.serve(routes, ended.clone()));
    let known = (metrics, conflicts);
    Box::pin(serve(&options, log, known, &readiness, &stop)).await?;
    ended.cancel();
    let probed = probed.await.unwrap_or(Ok(()));
    probed.map_err(serving("probes"))?;
    info!("all requests are answered; the controller ends");
    Ok(())
}

/// Serves webhooks and metrics and reconciles jobs until `stop`.
async fn serve(
    options: &ControllerOptions,
    log: LogLevel,
    (metrics, conflicts): (Metrics, ConflictWatch),
    readiness: &Readiness,
    stop: &CancellationToken,
) -> Result<(), ControllerError> {
    let (release, refused) = (&options.release, &metrics.refused);
    let webhook_port = Port::listen(options.webhook_port, WEBHOOKS, refused);
    let webhook_port = webhook_port.map_err(serving("webhooks"))?;
    let metrics_port = Port::listen(options.metrics_port, METRICS, refused);
    let metrics_port = metrics_port.map_err(serving("metrics"))?;
    let clients = options.clients()?;
    let client = client(&metrics).await?;
    let policies = GuestHost::open(policy_options(options))
        .await
        .map_err(ControllerError::GuestHost)?
        .with_metrics(metrics.guests.clone());
    let guests = ActivePolicies::new(policies);
    let callers = options.callers();
    let loaded = report_loaded(guests.clone(), readiness);
    let (namespaces, namespace_watch) = namespaces();
    let (served_kueue, kueue_watch) = kueue(options);
    let (dry_runs, mountable) = (DryRuns::default(), Mountable::default());
    let pod_trial = options.pod_trial(&client, dry_runs.clone(), mountable.clone());
    let (jobs, kueue) = (StoredJobs::new(client.clone()), served_kueue.clone());
    let context = metrics.of_webhooks(callers.clone(), kueue, pod_trial, jobs);
    let asked = router(guests.clone(), namespaces.clone(), context);
    let kept = options.certificate_manager(&client);
    let kept = (kept, clients, metrics.certificates.clone());
    let registration = options.registration(&client);
    let webhooks = webhooks::run(webhook_port, kept, registration, asked, readiness, stop);
    let measured = options.serve_metrics(metrics_port, &client, (&metrics, guests.clone()), stop);
    let reviewer = options.reviewer(&client, &metrics, &guests, &namespaces);
    let metrics_of_policies = (guests, metrics.policies.clone(), metrics.conflicts.clone());
    let followed = ipu_policies::follow(
        client.clone(),
        release,
        Process::Controller,
        metrics_of_policies,
        stop.clone(),
    );
    let watches = Watches {
        log,
        namespaces: (namespaces, namespace_watch),
        conflicts,
        callers,
        kueue: kueue_watch,
    };
    let jobs = options.jobs();
    let reconcilers = options.reconcilers(&jobs, served_kueue, dry_runs, mountable, &metrics);
    let (served, measured, _, (), (), (), ()) = tokio::join!(
        ends_all(webhooks, stop),
        Box::pin(ends_all(measured, stop)),
        stop.run_until_cancelled(loaded),
        jobs::run_as_leader(&client, release, &reconcilers, lease::LEASE_DURATION, stop),
        Box::pin(followed),
        Box::pin(reviewer.run(stop.clone())),
        Box::pin(watches.follow(&client, release, stop)),
    );
    served.map_err(serving("webhooks"))?;
    measured.map_err(serving("metrics"))
}

async fn client(metrics: &Metrics) -> Result<Client, ControllerError> {
    let client = metrics.api.client().await;
    client.map_err(|source| ControllerError::Client(Box::new(source)))
}

async fn report_loaded(guests: ActivePolicies, readiness: &Readiness) {
    guests.wait_loaded().await;
    readiness.reached(Step::PoliciesLoaded);
}

/// Runs a server, and stops the whole process when the server ends.
async fn ends_all<T>(server: impl Future<Output = T>, stop: &CancellationToken) -> T {
    let ended = server.await;
    stop.cancel();
    ended
}

/// Watches of the process.
struct Watches {
    log: LogLevel,
    namespaces: (Namespaces, NamespaceWatch),
    conflicts: ConflictWatch,
    callers: Callers,
    kueue: Option<ServedGroupWatch>,
}

impl Watches {
    /// Follows all watches until `stop`.
    async fn follow(self, client: &Client, release: &ReleaseOptions, stop: &CancellationToken) {
        let (log, process) = (self.log, Process::Controller);
        let (namespaces, labels) = self.namespaces;
        let kueue = async {
            if let Some(kueue) = self.kueue {
                kueue.follow(client.clone(), stop.clone()).await;
            }
        };
        tokio::join!(
            kueue,
            log.follow(client.clone(), release, process, stop.clone()),
            labels.follow(client.clone(), stop.clone()),
            namespaces.follow_partitions(client.clone(), stop.clone()),
            self.conflicts.follow(client.clone(), stop.clone()),
            self.callers.follow(client.clone(), stop.clone()),
        );
    }
}

/// Whether Kueue is installed, and the watch of its API group. If the admin has disabled the
/// queues, Kueue counts as not installed.
fn kueue(options: &ControllerOptions) -> (ServedGroup, Option<ServedGroupWatch>) {
    if !options.kueue {
        return (ServedGroup::default(), None);
    }
    let (served, watch) = served_group(queueing::GROUP, queueing::VERSION);
    (served, Some(watch))
}

fn policy_options(options: &ControllerOptions) -> GuestHostOptions {
    let hooks = [Hook::Defaulting, Hook::Validation];
    ipu_policies::host_options(&options.release, &hooks, options.guests())
}
