//! A real API server, simulated controllers, and a vipu-proxy that can be killed and started again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ipu_operator::api::ipupartition::{
    IPUPartition, IPUPartitionSpec, PartitionOptions, PartitionOwner, PartitionPhase,
};
use ipu_operator::certificates::Source;
use ipu_operator::metrics::Metrics;
use ipu_operator::names;
use ipu_operator::partition::sweep;
use ipu_operator::proxy::{self, ProxyOptions, SecureOptions, Times};
use ipu_operator::release::ReleaseOptions;
use ipu_operator::scope::Scope;
use ipu_operator::vipu::AccessOptions;
use ipu_operator::wasm::Policies;
use ipu_operator::wasm::model::Slot;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, Pod, PodSpec};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tests::lab::control_plane::ControlPlane;
use tests::simulator::faults::Method;
use tests::simulator::pod::Wanted;
use tests::simulator::{Options, Simulator};
use tests::wait::{Seen, eventually};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::install::{apply, install};

/// Where the release would be.
pub(crate) const NAMESPACE: &str = "ipu-operator-system";

/// What tokens for the proxy must be for.
pub(crate) const AUDIENCE: &str = "ipu-operator";

/// The ConfigMap with the admin's list.
pub(crate) const LIST: &str = "ipu-operator-vipu-controllers";

/// IPUPartitions belong to no namespace, so that one scene at a time has the API server.
static STAGE: Mutex<()> = Mutex::const_new(());

pub(crate) struct Scene {
    pub(crate) client: Client,
    pub(crate) pods: Vec<Simulator>,
    pub(crate) port: u16,
    /// How long somebody who waits is passed by smaller ones, in seconds; read when a proxy starts.
    pub(crate) overtaking_limit: u64,
    /// Whose partitions are made; read when a proxy starts.
    pub(crate) scope: Scope,
    /// The placement policy's folder and settings; read when a proxy starts. None: the built-in walk.
    pub(crate) policy: Option<(PathBuf, serde_json::Value)>,
    proxy: Option<Replica>,
    pub(crate) secure_port: u16,
    _stage: MutexGuard<'static, ()>,
}

impl Scene {
    /// Controllers of these sizes, in this order, and a proxy that knows them.
    pub(crate) async fn start(sizes: &[u32]) -> Self {
        let mut scene = Self::without_proxy(sizes).await;
        scene.start_proxy().await;
        scene
    }

    pub(crate) async fn without_proxy(sizes: &[u32]) -> Self {
        let stage = STAGE.lock().await;
        let client = ControlPlane::shared()
            .await
            .unwrap()
            .client()
            .await
            .unwrap();
        install(&client).await;
        let mut pods = Vec::new();
        for (index, ipus) in sizes.iter().enumerate() {
            let options = Options::quick(&format!("pod{}", index + 1), *ipus);
            pods.push(Simulator::start(options).await.unwrap());
        }
        let scene = Scene {
            client,
            pods,
            port: free_port(),
            overtaking_limit: 600,
            scope: Scope::Cluster,
            policy: None,
            secure_port: free_port(),
            proxy: None,
            _stage: stage,
        };
        scene
            .list_controllers(&scene.pods.iter().collect::<Vec<_>>())
            .await;
        scene
    }

    /// Writes the admin's list; the nodes of every controller are there.
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
            Api::<ConfigMap>::namespaced(self.client.clone(), NAMESPACE),
            &map,
        )
        .await;
    }

    pub(crate) async fn start_proxy(&mut self) {
        // One name, as of a container that is started again in its Pod: it leads at once.
        self.proxy = Some(
            self.replica("vipu-proxy-0", [self.port, self.secure_port])
                .await,
        );
    }

    /// A proxy of this name, which answers on these ports: plain, and with TLS.
    pub(crate) async fn replica(&self, name: &str, [port, secure_port]: [u16; 2]) -> Replica {
        let options = ProxyOptions {
            release: ReleaseOptions {
                pod_name: Some(name.to_owned()),
                namespace: NAMESPACE.to_owned(),
                fullname: "ipu-operator".to_owned(),
                guests_dir: PathBuf::from("/nonexistent"),
                policies_dir: self.policy.as_ref().map(|(folder, _)| folder.clone()),
                scope: self.scope.clone(),
                ..ReleaseOptions::default()
            },
            port,
            secure: SecureOptions {
                secure_port,
                audience: AUDIENCE.to_owned(),
                certificate: Source::Made,
                certificate_secret: None,
            },
            controllers_configmap: None,
            tracker_configmap: "ipu-partitions-tracker".to_owned(),
            vipu_timeout_seconds: 60,
            overtaking_limit_seconds: self.overtaking_limit,
            access: AccessOptions::default(),
            times: Times {
                in_error: Duration::from_secs(1),
                gang_patience: Duration::from_secs(1),
                sweep: sweep::Times {
                    period: Duration::from_secs(1),
                    grace: Duration::from_secs(1),
                },
                lease: Duration::from_secs(3),
            },
        };
        // Without a placement module the built-in walk decides, which is the same code.
        let settings = self.policy.as_ref().map(|(_, settings)| settings.clone());
        let slots: &[_] = match settings {
            Some(_) => &[Slot::Placement],
            None => &[],
        };
        let settings = settings.unwrap_or_default();
        let mut asked = options.release.policies(slots, settings);
        // The program of the tests compiles no policies.
        asked.compiler = None;
        let policies = Policies::open(asked);
        let policies = policies.await.unwrap();
        let client = self.client.clone();
        let stop = CancellationToken::new();
        Replica(tokio::spawn(async move {
            proxy::run_with(options, client, policies, Metrics::default(), stop)
                .await
                .unwrap();
        }))
    }

    /// Ends the proxy at once, wherever it is.
    pub(crate) async fn kill_proxy(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.kill().await;
        }
    }

    /// Writes a key beside the admin's list: `cordon` or `drain`.
    pub(crate) async fn close(&self, key: &str, pods: &[&Simulator]) {
        let names: Vec<String> = pods.iter().map(|pod| pod.address.to_string()).collect();
        let patch = Patch::Merge(json!({"data": {key: names.join(",")}}));
        Api::<ConfigMap>::namespaced(self.client.clone(), NAMESPACE)
            .patch(LIST, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub(crate) fn partitions(&self) -> Api<IPUPartition> {
        Api::all(self.client.clone())
    }

    /// Wants a partition for an owner whose kind is not judged by the sweep.
    pub(crate) async fn want(&self, name: &str, ipus: u32) -> IPUPartition {
        self.want_for(notebook(name), ipus).await
    }

    pub(crate) async fn want_for(&self, owner: PartitionOwner, ipus: u32) -> IPUPartition {
        self.want_with(owner, 0, ipus, PartitionOptions::default())
            .await
    }

    pub(crate) async fn want_with(
        &self,
        owner: PartitionOwner,
        slot: u32,
        ipus: u32,
        options: PartitionOptions,
    ) -> IPUPartition {
        let name = names::partition_object(&owner, slot);
        let spec = IPUPartitionSpec {
            owner,
            slot,
            ipus,
            gcds: 1,
            options,
            about: Default::default(),
            reset_generation: 0,
        };
        let object = IPUPartition::new(&name, spec);
        self.partitions()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    /// The user changes an object by a merge patch.
    pub(crate) async fn patch(
        &self,
        partition: &IPUPartition,
        change: serde_json::Value,
    ) -> Result<IPUPartition, kube::Error> {
        let (name, params) = (partition.name_any(), PatchParams::default());
        let patch = Patch::Merge(change);
        self.partitions().patch(&name, &params, &patch).await
    }

    pub(crate) async fn delete(&self, partition: &IPUPartition) {
        let name = partition.name_any();
        self.partitions()
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// The object once `is_so`.
    pub(crate) async fn once(
        &self,
        partition: &IPUPartition,
        what: &str,
        is_so: impl Fn(&IPUPartition) -> bool,
    ) -> IPUPartition {
        let name = partition.name_any();
        eventually(what, async || {
            let object = self.partitions().get_opt(&name).await.unwrap();
            let state = format!("{:#?}", object.as_ref().map(|object| &object.status));
            object.filter(|object| is_so(object)).ok_or(state)
        })
        .await
    }

    pub(crate) async fn once_in(
        &self,
        partition: &IPUPartition,
        phase: PartitionPhase,
    ) -> IPUPartition {
        let what = format!("{} is {phase:?}", partition.name_any());
        let is_so = |object: &IPUPartition| {
            object
                .status
                .as_ref()
                .is_some_and(|status| status.phase == phase)
        };
        self.once(partition, &what, is_so).await
    }

    /// The object once its status says why it waits.
    pub(crate) async fn once_waiting(&self, partition: &IPUPartition) -> IPUPartition {
        self.once(partition, "it says why it waits", |object| {
            let status = object.status.as_ref();
            status.is_some_and(|status| !status.waiting.is_empty())
        })
        .await
    }

    pub(crate) async fn once_gone(&self, partition: &IPUPartition) {
        let name = partition.name_any();
        eventually(&format!("{name} is gone"), async || {
            let object = self.partitions().get_opt(&name).await.unwrap();
            Seen::when(object.map(|object| object.status), Option::is_none)
        })
        .await;
    }

    /// The note of an event of this reason on an object.
    pub(crate) async fn once_event(&self, name: &str, reason: &str) -> String {
        let events = Api::<Event>::namespaced(self.client.clone(), "default");
        eventually(&format!("{name} has an event {reason}"), async || {
            let list = events.list(&Default::default()).await.unwrap();
            let of_it = list.items.into_iter().filter(|event| {
                let about = event.regarding.as_ref();
                about.is_some_and(|about| about.name.as_deref() == Some(name))
            });
            let (found, others): (Vec<_>, Vec<_>) =
                of_it.partition(|event| event.reason.as_deref() == Some(reason));
            let mut notes = found.into_iter().filter_map(|event| event.note);
            notes.next().ok_or(format!("{others:?}"))
        })
        .await
    }

    /// Puts a partition of this installation on a controller for which there is no IPUPartition.
    pub(crate) async fn orphan(&self, pod: usize, owner: &PartitionOwner) -> String {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let system = namespaces.get("kube-system").await.unwrap();
        let installation = format!("{}/{NAMESPACE}", system.uid().unwrap());
        let id = names::partition_id(&installation, owner, 0, "a-request-of-old", 7);
        self.put(pod, &id);
        id
    }

    /// Makes a partition on a controller by hand.
    pub(crate) fn put(&self, pod: usize, id: &str) {
        let wanted = Wanted {
            id: id.to_owned(),
            ipus: 4,
            ..Wanted::default()
        };
        let made = |world: &mut tests::simulator::World, now| world.pod.take(&wanted, now);
        self.pods[pod].server.with(made).unwrap();
    }

    /// The ids on each controller.
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

    /// How often a method was called on a controller.
    pub(crate) fn calls(&self, pod: usize, method: Method) -> usize {
        let calls = self.pods[pod].server.calls(0);
        calls.iter().filter(|call| call.method == method).count()
    }

    /// A Pod that uses partition `id`; nothing runs it.
    pub(crate) async fn start_pod(&self, name: &str, id: &str) -> Api<Pod> {
        let label = (names::PARTITION_ID_LABEL.to_owned(), id.to_owned());
        self.start_pod_with(ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([label])),
            ..ObjectMeta::default()
        })
        .await
    }

    /// A Pod with this metadata; nothing runs it.
    pub(crate) async fn start_pod_with(&self, metadata: ObjectMeta) -> Api<Pod> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), "default");
        let pod = Pod {
            metadata,
            spec: Some(PodSpec {
                automount_service_account_token: Some(false),
                containers: vec![Container {
                    name: "main".to_owned(),
                    image: Some("none".to_owned()),
                    ..Container::default()
                }],
                ..PodSpec::default()
            }),
            ..Pod::default()
        };
        pods.create(&PostParams::default(), &pod).await.unwrap();
        pods
    }
}

/// A proxy that runs; dropped, it ends as if it was killed.
pub(crate) struct Replica(JoinHandle<()>);

impl Replica {
    /// Ends it at once, wherever it is.
    pub(crate) async fn kill(mut self) {
        self.0.abort();
        let ended = (&mut self.0).await;
        assert!(ended.unwrap_err().is_cancelled(), "it had ended by itself");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An owner whose kind is not judged by the sweep.
pub(crate) fn notebook(name: &str) -> PartitionOwner {
    PartitionOwner {
        api_version: "example.com/v1".to_owned(),
        kind: "Notebook".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
    }
}

/// The id that the status offers.
pub(crate) fn id(partition: &IPUPartition) -> String {
    partition
        .status
        .as_ref()
        .unwrap()
        .partition_id
        .clone()
        .unwrap()
}

/// The controller that the status names.
pub(crate) fn controller(partition: &IPUPartition) -> String {
    partition
        .status
        .as_ref()
        .unwrap()
        .controller
        .as_ref()
        .unwrap()
        .name
        .clone()
}

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
