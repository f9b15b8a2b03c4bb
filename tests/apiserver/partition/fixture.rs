//! A real API server, simulated controllers, and a vipu-proxy that can be killed and started again.

mod controllers;
mod objects;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cluster::control_plane::pool::Loan;
use cluster::control_plane::{ControlPlane, free_ports};
use cluster::wait::{Seen, eventually};
use futures::future::OptionFuture;
use ipu_api::ipupartition::PartitionOwner;
use ipu_api::ipupolicy::Hook;
use ipu_api::naming::Identity;
use ipu_guest_host::GuestHost;
use ipu_operator::exposition::Metrics;
use ipu_operator::proxy::{self, ProxyOptions, SecureOptions, Times};
use ipu_partitions::sweep;
use ipu_ports::certificates::Source;
use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::scope::{Conflicts, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vipu_client::AuthOptions;
use vipu_simulator::faults::Method;
use vipu_simulator::pod::PartitionSpec;
use vipu_simulator::{Options, Simulator};

use super::install::{apply, install};
use crate::planes;

pub(crate) use objects::{controller, id, notebook};

/// Namespace of the release.
pub(crate) const NAMESPACE: &str = "ipu-operator-system";

/// Audience of tokens for the proxy.
pub(crate) const AUDIENCE: &str = "ipu-operator";

/// The ConfigMap with the admin's list.
pub(crate) const LIST: &str = "ipu-operator-vipu-controllers";

pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) pods: Vec<Simulator>,
    pub(crate) port: u16,
    /// Backfill limit in seconds, read when a proxy starts.
    pub(crate) backfill_limit: u64,
    /// Deadline of changes on V-IPU controllers in seconds, read when a proxy starts.
    pub(crate) vipu_timeout: u64,
    /// Namespace of the release, read when a proxy starts.
    pub(crate) namespace: String,
    /// Namespaces whose partitions are served, read when a proxy starts.
    pub(crate) scope: Scope,
    /// The folder and the settings of the built-in guest for placement, read when a proxy starts.
    /// None: the built-in walk.
    pub(crate) policy: Option<(PathBuf, serde_json::Value)>,
    /// Whether a proxy looks for older releases, which make it inactive. Read when a proxy starts.
    pub(crate) looks_for_releases: bool,
    proxy: Option<Replica>,
    pub(crate) secure_port: u16,
    /// Dropped last: the proxy ends before.
    plane: Option<Loan>,
}

impl Fixture {
    /// Starts controllers of these sizes, in this order, and a proxy with them in its list.
    pub(crate) async fn start(sizes: &[u32]) -> Self {
        let mut fixture = Self::without_proxy(sizes).await;
        fixture.start_proxy().await;
        fixture
    }

    pub(crate) async fn without_proxy(sizes: &[u32]) -> Self {
        let plane = planes::with_definitions().await;
        let mut fixture = Self::on(&plane, sizes).await;
        fixture.plane = Some(plane);
        fixture
    }

    /// Starts the same on an API server with the CRDs, which must live longer.
    pub(crate) async fn on(plane: &ControlPlane, sizes: &[u32]) -> Self {
        let client = plane.client().await.unwrap();
        install(&client, NAMESPACE).await;
        let mut pods = Vec::new();
        for (index, ipus) in sizes.iter().enumerate() {
            let options = Options::quick(&format!("pod{}", index + 1), *ipus);
            pods.push(Simulator::start(options).await.unwrap());
        }
        let fixture = Fixture {
            client,
            kubeconfig: plane.kubeconfig(),
            pods,
            port: free_port(),
            backfill_limit: 600,
            vipu_timeout: 60,
            namespace: NAMESPACE.to_owned(),
            scope: Scope::Cluster,
            policy: None,
            looks_for_releases: false,
            secure_port: free_port(),
            proxy: None,
            plane: None,
        };
        fixture
            .list_controllers(&fixture.pods.iter().collect::<Vec<_>>())
            .await;
        fixture
    }

    /// Writes the admin's list. The nodes of every controller exist.
    pub(crate) async fn list_controllers(&self, pods: &[&Simulator]) {
        let labelled: Vec<_> = pods.iter().map(|pod| (*pod, "here")).collect();
        self.list_labelled(&labelled).await;
    }

    /// Writes the admin's list, with the value of the label of each controller's nodes.
    pub(crate) async fn list_labelled(&self, pods: &[(&Simulator, &str)]) {
        let entries: Vec<String> = pods
            .iter()
            .map(|(pod, label)| format!("{}:ipunode={label}", pod.address))
            .collect();
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(LIST.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(
                "controllers.yaml".to_owned(),
                entries.join(","),
            )])),
            ..ConfigMap::default()
        };
        apply(
            Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace),
            &map,
        )
        .await;
    }

    /// Uninstalls the release, and installs one in another namespace, for the same controllers.
    pub(crate) async fn reinstall_in(&mut self, namespace: &str) {
        self.kill_proxy().await;
        let all: Vec<_> = (0..self.pods.len()).map(|pod| (pod, "here")).collect();
        self.install_in(namespace, &all).await;
    }

    /// Installs another release in another namespace beside this one, for the same controllers. The
    /// fixture continues with the other one, and returns the proxy of this one.
    pub(crate) async fn install_beside(&mut self, namespace: &str) -> Replica {
        let all: Vec<_> = (0..self.pods.len()).map(|pod| (pod, "here")).collect();
        self.install_beside_for(namespace, &all).await
    }

    /// The same for these controllers, with the value of the label of each controller's nodes.
    pub(crate) async fn install_beside_for(
        &mut self,
        namespace: &str,
        pods: &[(usize, &str)],
    ) -> Replica {
        let former = self.proxy.take().unwrap();
        (self.port, self.secure_port) = (free_port(), free_port());
        self.install_in(namespace, pods).await;
        former
    }

    async fn install_in(&mut self, namespace: &str, pods: &[(usize, &str)]) {
        let metadata = ObjectMeta {
            name: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        let object = Namespace {
            metadata,
            ..Namespace::default()
        };
        apply(Api::<Namespace>::all(self.client.clone()), &object).await;
        namespace.clone_into(&mut self.namespace);
        let pods = pods.iter().map(|(pod, label)| (&self.pods[*pod], *label));
        let pods: Vec<_> = pods.collect();
        self.list_labelled(&pods).await;
        self.start_proxy().await;
    }

    pub(crate) async fn start_proxy(&mut self) {
        // The same name, as of a container that restarts in its Pod: the proxy leads at once.
        let ports = [self.port, self.secure_port];
        self.proxy = Some(self.replica("vipu-proxy-0", ports).await);
    }

    /// Returns the options of a proxy of this name that serves these ports: plain, and with TLS.
    pub(crate) fn options(&self, name: &str, [port, secure_port]: [u16; 2]) -> ProxyOptions {
        ProxyOptions {
            release: ReleaseOptions {
                pod_name: Some(name.to_owned()),
                namespace: self.namespace.clone(),
                fullname: "ipu-operator".to_owned(),
                webhook_configuration: Some(configuration(&self.namespace)),
                guests_dir: self.policy.as_ref().map_or_else(
                    || PathBuf::from("/nonexistent"),
                    |(folder, _)| folder.clone(),
                ),
                scope: self.scope.clone(),
                ..ReleaseOptions::default()
            },
            port,
            probe_port: 0,
            secure: SecureOptions {
                secure_port,
                audience: AUDIENCE.to_owned(),
                certificate: Source::Made,
                certificate_secret: None,
            },
            controllers_configmap: None,
            tracker_configmap: "ipu-partitions-tracker".to_owned(),
            vipu_timeout_seconds: self.vipu_timeout,
            backfill_limit_seconds: self.backfill_limit,
            avoid_failed_nodes: false,
            export_machines: true,
            advertise: true,
            access: AuthOptions::default(),
            times: Times {
                in_error: Duration::from_secs(1),
                gang_patience: Duration::from_secs(1),
                sweep: sweep::Times {
                    period: Duration::from_secs(1),
                    grace: Duration::from_secs(1),
                },
                lease: Duration::from_secs(3),
            },
        }
    }

    /// Starts a proxy of this name that serves these ports: plain, and with TLS.
    pub(crate) async fn replica(&self, name: &str, ports: [u16; 2]) -> Replica {
        self.replica_of(self.client.clone(), name, ports).await
    }

    /// The same with its own client.
    pub(crate) async fn replica_of(&self, client: Client, name: &str, ports: [u16; 2]) -> Replica {
        let options = self.options(name, ports);
        // Without a placement module the built-in walk decides, with the same code.
        let settings = self.policy.as_ref().map(|(_, settings)| settings.clone());
        let hooks: &[_] = match settings {
            Some(_) => &[Hook::Placement],
            None => &[],
        };
        let settings = settings.unwrap_or_default();
        let mut asked = ipu_policies::host_options(&options.release, hooks, settings);
        // The program of the tests compiles no policies.
        asked.compiler = None;
        let policies = GuestHost::open(asked);
        let policies = policies.await.unwrap();
        let stop = CancellationToken::new();
        let (metrics, watch) = if self.looks_for_releases {
            let (metrics, watch) = Metrics::of_release(&options.release);
            (metrics, Some(watch.follow(client.clone(), stop.clone())))
        } else {
            (Metrics::default(), None)
        };
        let conflicts = metrics.conflicts.clone();
        let stopping = stop.clone();
        let task = tokio::spawn(async move {
            let proxy = Box::pin(proxy::run_with(
                options, client, policies, metrics, stopping,
            ));
            let (ended, _) = futures::join!(proxy, OptionFuture::from(watch));
            ended.unwrap();
        });
        Replica {
            task,
            conflicts,
            stop,
        }
    }

    /// The older releases that make the release of the proxy inactive.
    pub(crate) fn conflicts(&self) -> Conflicts {
        self.proxy.as_ref().unwrap().conflicts.clone()
    }

    /// Aborts the proxy at once, at any step.
    pub(crate) async fn kill_proxy(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.kill().await;
        }
    }

    /// Stops the proxy as SIGTERM does, and waits until it has ended.
    pub(crate) async fn stop_proxy(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
    }

    /// Writes the key `gone` beside the admin's list.
    pub(crate) async fn mark_gone(&self, pods: &[&Simulator]) {
        let names: Vec<String> = pods.iter().map(|pod| pod.address.to_string()).collect();
        let patch = Patch::Merge(json!({"data": {"gone": names.join(",")}}));
        Api::<ConfigMap>::namespaced(self.client.clone(), NAMESPACE)
            .patch(LIST, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Creates a partition on a controller with the id of a release in `NAMESPACE`, and without an
    /// IPUPartition.
    pub(crate) async fn orphan(&self, pod: usize, owner: &PartitionOwner) -> String {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let system = namespaces.get("kube-system").await.unwrap();
        let identity = Identity::new(&system.uid().unwrap(), NAMESPACE);
        let id = identity.partition_id(owner, 0, "a-request-of-old", 7, 0);
        self.put(pod, &id);
        id
    }

    /// Creates a partition on a controller by hand.
    pub(crate) fn put(&self, pod: usize, id: &str) {
        let wanted = PartitionSpec {
            id: id.to_owned(),
            ipus: 4,
            ..PartitionSpec::default()
        };
        let made = |world: &mut vipu_simulator::World, now| world.pod.take(&wanted, now);
        self.pods[pod].server.with(made).unwrap();
    }

    /// Returns the ids on each controller.
    pub(crate) fn ids(&self) -> Vec<Vec<String>> {
        let of = |pod: &Simulator| {
            pod.server.with(|world, now| {
                world
                    .pod
                    .partitions(now)
                    .map(|partition| partition.id.clone())
                    .collect()
            })
        };
        self.pods.iter().map(of).collect()
    }

    pub(crate) async fn once_ids(
        &self,
        what: &str,
        is_so: impl Fn(&[Vec<String>]) -> bool,
    ) -> Vec<Vec<String>> {
        eventually(what, async || Seen::when(self.ids(), |ids| is_so(ids))).await
    }

    /// Returns the number of calls of a method to a controller.
    pub(crate) fn calls(&self, pod: usize, method: Method) -> usize {
        let calls = self.pods[pod].server.calls(0);
        calls.iter().filter(|call| call.method == method).count()
    }
}

/// A running proxy. Its drop is a kill.
pub(crate) struct Replica {
    task: JoinHandle<()>,
    conflicts: Conflicts,
    stop: CancellationToken,
}

impl Replica {
    /// Aborts it at once, at any step.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        let ended = (&mut self.task).await;
        assert!(ended.unwrap_err().is_cancelled(), "it had ended by itself");
    }

    /// Stops it as SIGTERM does, and waits until it has ended.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Name of the webhook configurations of a release in this namespace.
pub(crate) fn configuration(namespace: &str) -> String {
    format!("ipu-operator.{namespace}")
}

/// A port that nothing else of this process gets, so that a killed server can listen on it again.
pub(crate) fn free_port() -> u16 {
    let [port] = free_ports().unwrap();
    port
}
