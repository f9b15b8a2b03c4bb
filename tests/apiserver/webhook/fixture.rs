//! The operator's webhooks beside a real API server, registered as the chart registers them, but by
//! URL.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use cluster::control_plane::ControlPlane;
use cluster::control_plane::pool::Loan;
use cluster::wait::{Seen, eventually};
use ipu_admission::callers::Callers;
use ipu_admission::pod_trial::PodTrial;
use ipu_admission::scale::StoredJobs;
use ipu_admission::server::router;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_jobs::build::{AgentDelivery, PodSettings};
use ipu_jobs::trial;
use ipu_operator::controller::existing::ExistingReviewer;
use ipu_operator::controller::probes::{Readiness, Step};
use ipu_operator::controller::webhooks;
use ipu_operator::exposition::Metrics;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::namespaces;
use ipu_ports::certificates::Source;
use ipu_ports::certificates::registration::{CaBundles, Registration};
use ipu_ports::certificates::renewal::CertificateManager;
use ipu_ports::certificates::served::ServedCertificates;
use ipu_ports::limits::WEBHOOKS;
use ipu_ports::serve::Port;
use ipu_runtime::dry_run::DryRuns;
use ipu_runtime::lease::LeadershipStatus;
use ipu_runtime::release::{Process, ReleaseOptions, RequiredKeys};
use ipu_runtime::scope::Conflicts;
use ipu_runtime::served_group::ServedGroup;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use release::guests;
use rustls::server::NoClientAuth;
use rustls::server::danger::ClientCertVerifier;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::view::View;
use crate::chart::arguments::rendered;
use crate::planes;

/// Name of both webhook configurations.
pub(crate) const CONFIGURATION: &str = "ipu-operator";

/// A control plane and the operator's webhooks, which run in a thread of their own.
pub(crate) struct Webhooks {
    client: Client,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
    control_plane: Loan,
}

impl Webhooks {
    /// Webhooks that tests share if they do not change them, with a client for the calling test.
    pub(crate) async fn shared() -> View {
        static SHARED: OnceCell<Webhooks> = OnceCell::const_new();
        let webhooks = SHARED
            .get_or_init(|| Self::new(None, RequiredKeys::default()))
            .await;
        View::of(&webhooks.control_plane).await
    }

    /// Webhooks for one test.
    pub(crate) async fn start() -> Owned {
        Self::own(None, RequiredKeys::default()).await
    }

    /// Webhooks for one test, with the built-in guests of a folder.
    pub(crate) async fn start_with(guests_dir: PathBuf) -> Owned {
        Self::own(Some(guests_dir), RequiredKeys::default()).await
    }

    /// Webhooks for one test, of a release that requires these keys for modules.
    pub(crate) async fn start_requiring(keys: RequiredKeys) -> Owned {
        Self::own(None, keys).await
    }

    async fn own(guests_dir: Option<PathBuf>, required_keys: RequiredKeys) -> Owned {
        let webhooks = Self::new(guests_dir, required_keys).await;
        let view = View::of(&webhooks.control_plane).await;
        Owned { view, webhooks }
    }

    async fn new(guests_dir: Option<PathBuf>, required_keys: RequiredKeys) -> Self {
        // Before any step with a time limit: an initial build takes minutes.
        let built = tokio::task::spawn_blocking(guests::build).await;
        let guests_dir = guests_dir.unwrap_or(built.unwrap().unwrap());
        let control_plane = planes::with_definitions().await;
        let client = control_plane.client().await.unwrap();
        let metrics = Metrics::default();
        let listener = Port::listen(0, WEBHOOKS, &metrics.refused).unwrap();
        let port = listener.number().unwrap();
        for template in ["webhook-mutating", "webhook-validating"] {
            register(&client, template, port).await;
        }
        let stop = CancellationToken::new();
        let readiness = Readiness::default();
        let release = ReleaseOptions {
            required_keys,
            ..release(guests_dir, "controller-0")
        };
        let thread = serve(
            release,
            control_plane.kubeconfig(),
            (listener, metrics),
            readiness.clone(),
            stop.clone(),
        );
        eventually("the webhooks are ready", async || {
            Seen::when(readiness.missing(), Vec::is_empty)
        })
        .await;
        let webhooks = Self {
            client,
            stop,
            thread: Some(thread),
            control_plane,
        };
        webhooks.wait_until_called().await;
        webhooks
    }

    /// An API server follows a new caBundle with a short delay.
    async fn wait_until_called(&self) {
        let view = View::new(self.control_plane.kubeconfig(), self.client.clone());
        let probe = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUJob",
            "metadata": { "name": "probe" },
            "spec": {
                "jobInstances": 1,
                "ipusPerJobInstance": "3",
                "workers": { "template": { "spec": { "containers": [{ "name": "x" }] } } },
            },
        });
        eventually("the API server trusts the webhooks", async || {
            Seen::when(view.create(&probe).await.err(), |refusal| {
                refusal.as_ref().is_some_and(|status| status.code == 422)
            })
        })
        .await;
    }

    fn stop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Webhooks for one test.
pub(crate) struct Owned {
    view: View,
    webhooks: Webhooks,
}

impl Owned {
    /// The control plane of the webhooks.
    pub(crate) fn control_plane(&self) -> &ControlPlane {
        &self.webhooks.control_plane
    }

    /// Stops the webhooks. The API server keeps running.
    pub(crate) fn stop(&mut self) {
        self.webhooks.stop();
    }
}

impl std::ops::Deref for Owned {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

/// Serves the webhooks in a runtime of their own, because the runtime of a test ends with the test.
fn serve(
    release: ReleaseOptions,
    kubeconfig: PathBuf,
    (listener, metrics): (Port, Metrics),
    readiness: Readiness,
    stop: CancellationToken,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let policies = GuestHost::open(GuestHostOptions {
                guests_dir: release.guests_dir.clone(),
                settings: json!({ "maxIpusPerJob": 64 }),
                hooks: vec![Hook::Defaulting, Hook::Validation],
                ..GuestHostOptions::default()
            });
            let guests = ActivePolicies::new(policies.await.unwrap());
            readiness.reached(Step::PoliciesLoaded);
            let client = cluster::kubeconfig::client(&kubeconfig).await.unwrap();
            let registration = Registration {
                client: client.clone(),
                namespace: "default".to_owned(),
                configuration: CONFIGURATION.to_owned(),
                ca_bundles: CaBundles::Written,
                manages_owners: true,
            };
            let (namespaces, watch) = namespaces();
            let routes = router(
                guests.clone(),
                namespaces.clone(),
                metrics.of_webhooks(
                    Callers::default(),
                    ServedGroup::default(),
                    pod_trial(client.clone()),
                    StoredJobs::new(client.clone()),
                ),
            );
            let manager = certificate_manager(client.clone(), "ipu-operator-admission");
            let anybody: Arc<dyn ClientCertVerifier> = Arc::new(NoClientAuth);
            let kept = (manager, anybody, ServedCertificates::default());
            let leading = LeadershipStatus::default();
            let reviewer = ExistingReviewer {
                client: client.clone(),
                scope: release.scope.clone(),
                has_native_pods: true,
                active: guests.clone(),
                namespaces: namespaces.clone(),
                leading: leading.clone(),
            };
            let (served, (), (), (), ()) = tokio::join!(
                webhooks::run(listener, kept, registration, routes, &readiness, &stop),
                ipu_policies::follow(
                    client.clone(),
                    &release,
                    Process::Controller,
                    (guests, leading, Conflicts::default()),
                    stop.clone()
                ),
                reviewer.run(stop.clone()),
                watch.follow(client.clone(), stop.clone()),
                namespaces.follow_partitions(client.clone(), stop.clone()),
            );
            served.unwrap();
        });
    })
}

/// Tries the Pods of jobs, as with the default values of the chart.
fn pod_trial(client: Client) -> PodTrial {
    let settings = PodSettings {
        worker_host_network: true,
        avoid_failed_nodes: false,
        launcher_image: "example.org/ipu-operator:1".to_owned(),
        launcher_image_pull_policy: None,
        agent_delivery: AgentDelivery::Init,
        launcher_resources: None,
        launcher_policy: None,
        start_timeout: None,
    };
    PodTrial::new(client, DryRuns::default(), move |job| {
        trial::pods(job, &settings)
    })
}

/// Returns a replica of this name in the namespace `default`.
pub(crate) fn release(guests_dir: PathBuf, name: &str) -> ReleaseOptions {
    ReleaseOptions {
        namespace: "default".to_owned(),
        fullname: "ipu-operator".to_owned(),
        guests_dir,
        pod_name: Some(name.to_owned()),
        ..ReleaseOptions::default()
    }
}

pub(super) fn certificate_manager(client: Client, secret: &str) -> CertificateManager {
    CertificateManager {
        client,
        namespace: "default".to_owned(),
        secret: secret.to_owned(),
        names: vec!["127.0.0.1".to_owned()],
        source: Source::Made,
    }
}

/// Registers the webhooks of a template of the chart, by URL. Without a caBundle no call can
/// succeed: the operator must set it.
async fn register(client: &Client, template: &'static str, port: u16) {
    let objects = tokio::task::spawn_blocking(move || rendered(template, None)).await;
    let mut configuration = objects.unwrap().remove(0);
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        let path = webhook["clientConfig"]["service"]["path"].take();
        let url = format!("https://127.0.0.1:{port}{}", path.as_str().unwrap());
        webhook["clientConfig"] = json!({ "url": url });
    }
    install(client, &configuration).await;
}

/// Applies a webhook configuration or an admission policy of the chart.
pub(crate) async fn install(client: &Client, object: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let kind = object.types.as_ref().unwrap().kind.clone();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{}ies", stem.to_lowercase()),
        None => format!("{}s", kind.to_lowercase()),
    };
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let params = PatchParams::apply("tests").force();
    let name = object.name_any();
    objects
        .patch(&name, &params, &Patch::Apply(&object))
        .await
        .unwrap();
}
