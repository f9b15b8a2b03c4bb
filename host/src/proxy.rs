//! The vipu-proxy process: reconciles IPUPartitions, sweeps, and serves REST.

mod options;
mod secure;

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::Hook;
use ipu_api::naming::Identity;
use ipu_guest_host::{GuestHost, OpenError};
use ipu_ledger::step::Settings;
use ipu_partitions::accounting::AccountStore;
use ipu_partitions::controllers::ControllerPool;
use ipu_partitions::metrics::machines::Machines;
use ipu_partitions::nodes::nodes;
use ipu_partitions::publish::controller_objects::{self, ControllerObjects, ManagingRelease};
use ipu_partitions::publish::tracker::Tracker;
use ipu_partitions::publish::{account_recorder, advertise};
use ipu_partitions::store::watch::watched;
use ipu_partitions::{Context, Shared, sweep};
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::namespaces;
use ipu_ports::limits::{PROBES, REST, SECURE_REST};
use ipu_ports::serve::{Port, ServeError};
use ipu_rest::{Queries, Sources};
use ipu_runtime::config_map_watch::watch_config_map;
use ipu_runtime::lease::{Elector, LeadershipStatus};
use ipu_runtime::release::{Process, ReleaseOptions};
use ipu_runtime::scope::Conflicts;
use ipu_runtime::telemetry::level::LogLevel;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vipu_client::auth::AuthError;
use vipu_client::registry::Source;
use vipu_client::{AuthFiles, Deadlines, Registry};

use crate::exposition::{Exposed, Metrics};
use crate::shutdown;

pub use self::options::{ProxyArguments, ProxyOptions, Times};
pub use self::secure::{SecureOptions, certificate_manager};

/// Failure of the process, at its start or later.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// No client of the API server could be made.
    #[error("failed to find the API server")]
    Client(#[source] kube::Error),
    /// The identity of the cluster could not be read.
    #[error("failed to read the namespace kube-system, whose UID marks the ids of partitions")]
    Identity(#[source] kube::Error),
    /// The placement policy could not be loaded.
    #[error("failed to load the policies")]
    GuestHost(#[from] OpenError),
    /// An option about V-IPU controllers cannot be applied.
    #[error("failed to read the certificates or credentials for V-IPU controllers")]
    Access(#[from] AuthError),
    /// A REST port cannot be served.
    #[error("failed to serve a REST port")]
    Rest(#[from] ServeError),
    /// The process cannot listen for SIGTERM.
    #[error("failed to wait for signals")]
    Signal(#[source] std::io::Error),
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(options: ProxyOptions, log: LogLevel) -> Result<(), ProxyError> {
    let (metrics, conflict_watch) = Metrics::of_release(&options.release);
    let client = metrics.api.client().await.map_err(ProxyError::Client)?;
    let stop = CancellationToken::new();
    shutdown::on_signals(&stop).map_err(ProxyError::Signal)?;
    let (asking, release, stopping) = (client.clone(), options.release.clone(), stop.clone());
    tokio::spawn(async move {
        let following = log.follow(asking, &release, Process::VipuProxy, stopping);
        following.await;
    });
    tokio::spawn(conflict_watch.follow(client.clone(), stop.clone()));
    let policies = GuestHost::open(ipu_policies::host_options(
        &options.release,
        &[Hook::Placement],
        json!({}),
    ))
    .await?;
    Box::pin(run_with(options, client, policies, metrics, stop)).await
}

/// Runs until `stop`. If it is dropped earlier, it ends at once, as if the process was killed.
pub async fn run_with(
    options: ProxyOptions,
    client: Client,
    policies: GuestHost,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), ProxyError> {
    let policies = policies.with_metrics(metrics.guests.clone());
    let access = AuthFiles::open(options.access.clone()).await?;
    let registry = Registry::with_auth(deadlines(&options), access.subscribe());
    let registry = Arc::new(registry);
    let (nodes, node_watch) = nodes();
    let node_watch = node_watch.reading_checks(options.avoid_failed_nodes);
    let (namespaces, namespace_watch) = namespaces();
    let scope = options.release.scope.clone();
    let (watched, watch) = watched(namespaces.clone(), scope.clone());
    let (objects, object_watch) = controller_objects::controller_objects(registry.clone());
    let settings = settings(&options, &client).await?;
    let pool = ControllerPool::new(registry.clone(), nodes, watched.clone());
    let shared = Shared {
        client: client.clone(),
        pool: Arc::new(pool.comparing(settings.identity.clone())),
        guests: ActivePolicies::new(policies),
        settings,
        watched,
        namespaces,
        scope,
        accounts: AccountStore::default(),
        instance: options.release.pod_name.clone(),
        reconciles: metrics.reconciles.of_kind("ipupartition"),
    };
    tracing::info!(identity = shared.settings.identity.tag(), "starting");

    let mut tasks = JoinSet::new();
    tasks.spawn(node_watch.follow(client.clone(), stop.clone()));
    tasks.spawn(namespace_watch.follow(client.clone(), stop.clone()));
    tasks.spawn(watch.follow(client.clone(), stop.clone()));
    tasks.spawn(object_watch.follow(client.clone(), stop.clone()));
    tasks.spawn(access.follow(stop.clone()));
    let (list, asking) = (options.clone(), client.clone());
    tasks.spawn(follow_controllers(asking, list, registry, stop.clone()));
    follow_policies(&mut tasks, &shared, &options.release, &stop);
    let machines = options.export_machines.then(Machines::default);
    let behind = behind(&shared, machines, &metrics);
    let turn = (metrics.leading.clone(), metrics.conflicts.clone());
    let leading = run_as_leader(shared, objects, options.clone(), turn, stop.clone());
    tasks.spawn(leading);
    let served = serve(&options, client, behind, &metrics, &stop).await;
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task of the proxy failed");
        }
    }
    Ok(served?)
}

/// Settings of the decisions.
async fn settings(options: &ProxyOptions, client: &Client) -> Result<Settings, ProxyError> {
    Ok(Settings {
        identity: identity(client, &options.release.namespace).await?,
        forming: Duration::from_secs(options.vipu_timeout_seconds),
        grace: options.times.in_error,
        gang_patience: options.times.gang_patience,
        backfill_limit: Duration::from_secs(options.backfill_limit_seconds),
    })
}

fn follow_policies(
    tasks: &mut JoinSet<()>,
    shared: &Shared,
    release: &ReleaseOptions,
    stop: &CancellationToken,
) {
    let (asking, guests) = (shared.client.clone(), shared.guests.clone());
    let (release, stopping) = (release.clone(), stop.clone());
    tasks.spawn(async move {
        let following = ipu_policies::follow(
            asking,
            &release,
            Process::VipuProxy,
            (guests, LeadershipStatus::default(), Conflicts::default()),
            stopping,
        );
        Box::pin(following).await;
    });
}

/// Sources of the answers of the two ports.
fn behind(shared: &Shared, machines: Option<Machines>, metrics: &Metrics) -> (Sources, Exposed) {
    let sources = Sources {
        partitions: shared.watched.clone(),
        pool: shared.pool.clone(),
        guests: shared.guests.clone(),
        namespaces: shared.namespaces.clone(),
        backfill_limit: shared.settings.backfill_limit,
        queries: Queries::default(),
        recent: Default::default(),
    };
    let standing = ipu_partitions::metrics::Sources {
        partitions: sources.partitions.clone(),
        pool: shared.pool.clone(),
        namespaces: shared.namespaces.clone(),
        accounts: shared.accounts.clone(),
        machines,
    };
    let exposed = metrics.of_proxy(shared.guests.clone(), standing);
    (sources, exposed)
}

/// Serves both REST ports and the probes. If one of them fails, none is served.
async fn serve(
    options: &ProxyOptions,
    client: Client,
    (sources, exposed): (Sources, Exposed),
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Result<(), ServeError> {
    let refused = &metrics.refused;
    let plain = Port::listen(options.port, REST, refused)?;
    let secure = Port::listen(options.secure.secure_port, SECURE_REST, refused)?;
    let probes = Port::listen(options.probe_port, PROBES, refused)?;
    let probed = ipu_rest::probes(sources.clone());
    let (release, secured) = (&options.release, &options.secure);
    let routes = ipu_rest::plain(sources.clone(), refused.clone());
    let behind = (sources, exposed, metrics);
    futures::try_join!(
        plain.serve(routes, stop.clone()),
        secure::serve(secure, client, release, secured, behind, stop.clone()),
        probes.serve(probed, stop.clone()),
    )
    .map(|((), (), ())| ())
}

/// Follows the ConfigMap with the controllers.
async fn follow_controllers(
    client: Client,
    options: ProxyOptions,
    registry: Arc<Registry>,
    stop: CancellationToken,
) {
    let name = options.controllers_configmap();
    let objects = watch_config_map(client, &options.release.namespace, &name);
    tokio::select! {
        () = registry.follow(objects) => {}
        () = stop.cancelled() => {}
    }
}

/// Reconciles while this replica leads, once the active policies are loaded. When it loses the
/// leadership, work in progress is dropped as if the process was killed: the next leader finds all
/// necessary state in the API. Events need no leadership.
async fn run_as_leader(
    shared: Shared,
    objects: ControllerObjects,
    options: ProxyOptions,
    (leading, conflicts): (LeadershipStatus, Conflicts),
    stop: CancellationToken,
) {
    let loaded = stop.run_until_cancelled(shared.guests.wait_loaded());
    if loaded.await.is_none() {
        return;
    }
    let release = &options.release;
    let elector = Elector::new(
        shared.client.clone(),
        &release.namespace,
        &format!("{}-vipu-proxy", release.fullname),
        &release.replica_name(),
        options.times.lease,
    )
    .with_status(leading)
    .with_conflicts(conflicts.clone());
    let manager = ManagingRelease {
        namespace: release.namespace.clone(),
        conflicts,
    };
    while let Some(leadership) = stop.run_until_cancelled(elector.acquire()).await {
        let context = Arc::new(Context::new(shared.clone(), leadership.clone()));
        tokio::select! {
            () = elector.renew_until_lost(&leadership) => {
                shared.accounts.deactivate();
                // The next leader decides again, and the watch may never show the result of a
                // decision here.
                shared.namespaces.release_all();
                tokio::spawn(async move { context.events.close().await });
                continue;
            }
            // Forming a partition may take minutes; the next leader finds it.
            () = shutdown::drained(&stop) => {}
            () = lead(context.clone(), (&objects, &manager), &options, stop.clone()) => {}
        }
        futures::join!(context.events.close(), elector.release(&leadership));
        return;
    }
}

/// Runs the work of the leader until `stop`. It starts when the list of controllers, their cordons
/// and the nodes have been read, because an empty list would mean nothing before.
async fn lead(
    context: Arc<Context>,
    (objects, manager): (&ControllerObjects, &ManagingRelease),
    options: &ProxyOptions,
    stop: CancellationToken,
) {
    let mut known = context.pool.registry().subscribe();
    tokio::select! {
        _ = known.wait_for(|known| known.source != Source::NotRead) => {}
        () = stop.cancelled() => return,
    }
    tokio::select! {
        () = async { futures::join!(objects.known(), context.pool.nodes().known()); } => {}
        () = stop.cancelled() => return,
    }
    for (controller, ipus) in objects.sizes(&manager.namespace) {
        context.pool.remember_size(&controller, ipus);
    }
    let tracker = Tracker {
        namespace: options.release.namespace.clone(),
        name: options.tracker_configmap.clone(),
    };
    let summary = tracker.run(
        context.client.clone(),
        context.watched.clone(),
        stop.clone(),
    );
    let sweep = sweep::run(context.clone(), options.times.sweep, stop.clone());
    let advertise = async {
        if options.advertise {
            let (objects, manager) = (objects.clone(), manager.clone());
            advertise::run(context.clone(), objects, manager, stop.clone()).await;
        }
    };
    let (objects, manager) = (objects.clone(), manager.clone());
    let objects = controller_objects::run(context.clone(), objects, manager, stop.clone());
    let accounting = account_recorder::run(context.clone(), stop.clone());
    let reconcile = ipu_partitions::run(context.clone(), stop.clone());
    futures::join!(reconcile, sweep, summary, advertise, objects, accounting);
}

/// Identity of this cluster in ids of partitions, because several clusters may use one V-IPU
/// controller: the UID of the namespace `kube-system`. It does not depend on the release, so that a
/// later release finds the partitions of an earlier one.
async fn identity(client: &Client, namespace: &str) -> Result<Identity, ProxyError> {
    let system = Api::<Namespace>::all(client.clone())
        .get("kube-system")
        .await
        .map_err(ProxyError::Identity)?;
    let cluster = system.uid().unwrap_or_default();
    Ok(Identity::new(&cluster, namespace))
}

/// Deadlines of calls to V-IPU controllers.
pub(crate) fn deadlines(options: &ProxyOptions) -> Deadlines {
    Deadlines {
        connect: Duration::from_secs(3),
        read: Duration::from_secs(10),
        change: Duration::from_secs(options.vipu_timeout_seconds),
    }
}
