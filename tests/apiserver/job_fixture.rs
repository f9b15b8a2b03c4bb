//! Plays the missing parts around a real API server: the kubelet, the V-IPU proxy, and the user.

use std::future::ready;
use std::path::PathBuf;
use std::time::Duration;

use cluster::control_plane::pool::Loan;
use cluster::wait::{Seen, eventually};
use futures::{Stream, StreamExt};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::{IPUPartition, IPUPartitionSpec};
use ipu_api::labels;
use ipu_jobs::build::{AgentDelivery, PodSettings};
use ipu_jobs::{JobSettings, Shared};
use ipu_operator::exposition::Metrics;
use ipu_runtime::scope::Scope;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::kueue::players::run_pods;
use crate::{nodes, planes};

/// A namespace on a real API server, with players for the missing parts.
pub(crate) struct JobFixture {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: String,
    /// The metrics of the fixture's controllers.
    pub(crate) metrics: Metrics,
    controller: Option<JoinHandle<()>>,
    players: JoinSet<()>,
    /// Dropped last.
    _plane: Loan,
}

impl JobFixture {
    /// Creates a namespace, with the CRDs as users apply them.
    pub(crate) async fn new(name: &str) -> Self {
        let plane = planes::with_definitions().await;
        let client = plane.client().await.unwrap();
        let mut fixture = Self {
            client,
            kubeconfig: plane.kubeconfig(),
            namespace: name.to_owned(),
            metrics: Metrics::default(),
            controller: None,
            players: JoinSet::new(),
            _plane: plane,
        };
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
        namespaces
            .create(&kube::api::PostParams::default(), &namespace)
            .await
            .unwrap();
        let partitions = Api::all(fixture.client.clone());
        fixture.players.spawn(let_go(partitions, name.to_owned()));
        fixture
    }

    /// Starts the controller.
    pub(crate) fn start(&mut self) {
        self.start_with(self.client.clone());
    }

    /// Starts the controller with its own client.
    pub(crate) fn start_with(&mut self, client: Client) {
        self.start_as(client, settings());
    }

    /// Starts the controller with a limit of IPUs per job.
    pub(crate) fn start_under(&mut self, max_ipus_per_job: u32) {
        let settings = JobSettings {
            max_ipus_per_job,
            ..settings()
        };
        self.start_as(self.client.clone(), settings);
    }

    fn start_as(&mut self, client: Client, settings: JobSettings) {
        self.controller = Some(self.controller(client, settings));
    }

    /// A controller that the test ends itself.
    pub(crate) fn controller(&self, client: Client, settings: JobSettings) -> JoinHandle<()> {
        let metrics = self.metrics.of_jobs();
        tokio::spawn(async move {
            let (shared, stop) = (Shared::default(), CancellationToken::new());
            let run = ipu_jobs::run(client, settings, shared, &metrics, stop);
            run.await.unwrap();
        })
    }

    /// Aborts the controller between any two of its requests.
    pub(crate) async fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.abort();
            // The error only means that the task was aborted.
            let _ = controller.await;
        }
    }

    pub(crate) fn jobs(&self) -> Api<DynamicObject> {
        let jobs = ApiResource::erase::<IPUJob>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &jobs)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The user applies an IPUJob.
    pub(crate) async fn submit(&self, object: &Value) {
        let job: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let manager = PatchParams::apply("user");
        self.jobs()
            .patch(&job.name_any(), &manager, &Patch::Apply(&job))
            .await
            .unwrap();
    }

    /// The user deletes an IPUJob.
    pub(crate) async fn delete(&self, name: &str) {
        let parameters = DeleteParams::default();
        self.jobs().delete(name, &parameters).await.unwrap();
    }

    /// Waits until the IPUJob is gone.
    pub(crate) async fn once_gone(&self, name: &str) {
        eventually("the IPUJob is gone", async || {
            Seen::when(self.jobs().get_opt(name).await.unwrap(), Option::is_none)
        })
        .await;
    }

    /// Waits until the columns `STATUS CURRENT DESIRED` and the start of LASTMESSAGE have these
    /// values.
    pub(crate) async fn row(&self, name: &str, columns: &str, message: &str) {
        let wanted = format!("{columns} {message}");
        eventually(&format!("{name} is `{wanted}`"), async || {
            let found = self.jobs().get(name).await.unwrap();
            let status = &found.data["status"];
            let row = format!(
                "{} {} {} {}",
                status["launcherStatus"].as_str().unwrap_or_default(),
                status["currentReplicas"],
                status["desiredReplicas"],
                status["lastMessage"].as_str().unwrap_or_default()
            );
            Seen::when(row, |row| row.starts_with(&wanted))
        })
        .await;
    }

    /// Returns the partitions of this namespace's jobs.
    pub(crate) async fn partitions(&self) -> Vec<IPUPartition> {
        let api: Api<IPUPartition> = Api::all(self.client.clone());
        let all = api.list(&ListParams::default()).await.unwrap();
        all.items
            .into_iter()
            .filter(|found| found.spec.owner.namespace == self.namespace)
            .collect()
    }

    /// The proxy: waits for the partition of a slot, and sets it Ready.
    pub(crate) async fn partition_ready(&self, slot: u32) {
        self.partition_is_ready(|spec| spec.slot == slot).await;
    }

    /// The proxy: forms the partition of one of several jobs.
    pub(crate) async fn job_partition_ready(&self, job: &str) {
        self.partition_is_ready(|spec| spec.owner.name == job).await;
    }

    async fn partition_is_ready(&self, is_meant: impl Fn(&IPUPartitionSpec) -> bool) {
        let partition = eventually("the partition is requested", async || {
            let mut all = self.partitions().await.into_iter();
            all.find(|found| is_meant(&found.spec))
        })
        .await;
        let (name, slot) = (&partition.spec.owner.name, partition.spec.slot);
        let status = json!({"status": {
            "phase": "Ready",
            // The value is a label of Pods, and the name of the job can be longer than a label may
            // be.
            "partitionId": format!("p-{name:.20}-{}-{slot}", self.namespace),
            "generation": 1,
            "controller": {
                "name": "pod1:8090", "host": "pod1", "port": 8090,
                "labelKey": "ipunode", "labelValue": "pod1",
            },
        }});
        let api: Api<IPUPartition> = Api::all(self.client.clone());
        api.patch_status(
            &partition.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&status),
        )
        .await
        .unwrap();
    }

    /// The proxy: carries out every requested reset from now on.
    pub(crate) fn partitions_are_reset(&mut self) {
        let partitions = Api::all(self.client.clone());
        self.players
            .spawn(reset(partitions, self.namespace.clone()));
    }

    /// The proxy: carries out the requested reset.
    pub(crate) async fn partition_reset(&self, slot: u32) {
        let mut all = self.partitions().await.into_iter();
        let partition = all.find(|found| found.spec.slot == slot).unwrap();
        let api: Api<IPUPartition> = Api::all(self.client.clone());
        reset_is_done(&api, &partition).await.unwrap();
    }

    /// The scheduler: waits for a Pod, and assigns a node to it.
    pub(crate) async fn pod_is_bound(&self, name: &str, node: &str) {
        self.pod_exists(name).await;
        let bound = nodes::bind(&self.client, &self.namespace, name, node).await;
        bound.unwrap();
    }

    /// The notes of a job's events with a reason.
    pub(crate) async fn event(&self, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("an event {reason}"), async || {
            let all = events.list(&ListParams::default()).await.unwrap();
            let mut found = all.into_iter();
            found
                .find(|event| event.reason.as_deref() == Some(reason))?
                .message
        })
        .await
    }

    /// The reasons of all events of a job, in their order.
    pub(crate) async fn reasons_of(&self, job: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let of_job = format!("involvedObject.kind=IPUJob,involvedObject.name={job}");
        let found = events.list(&ListParams::default().fields(&of_job)).await;
        let found = found.unwrap().into_iter();
        found.filter_map(|event| event.reason).collect()
    }

    /// The kubelet: runs every Pod from now on.
    pub(crate) fn pods_run(&mut self) {
        self.players.spawn(run_pods(self.pods(), false));
    }

    /// The kubelet: waits for a Pod, and runs it.
    pub(crate) async fn pod_runs(&self, name: &str) {
        self.pod_exists(name).await;
        let status = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        self.pod_status(name, &status).await;
    }

    /// The kubelet: the program in a Pod ends.
    pub(crate) async fn pod_ends(&self, name: &str, exit_code: i32) {
        let phase = if exit_code == 0 {
            "Succeeded"
        } else {
            "Failed"
        };
        let status = json!({
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {
                    "exitCode": exit_code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z",
                }},
            }],
        });
        self.pod_status(name, &status).await;
    }

    /// Waits until a Pod of the name exists, and returns it.
    pub(crate) async fn pod_exists(&self, name: &str) -> Pod {
        let what = format!("the Pod {name} is made");
        eventually(&what, async || {
            if let Some(pod) = self.pods().get_opt(name).await.unwrap() {
                return Ok(pod);
            }
            // The jobs say why there is none.
            let jobs = self.jobs().list(&ListParams::default()).await.unwrap();
            let own = jobs.into_iter();
            let own = own.filter(|job| name.starts_with(&job.name_any()));
            let all = own.map(|job| job.data["status"].to_string());
            Err(all.collect::<Vec<_>>().join("; "))
        })
        .await
    }

    /// The kubelet: writes fields of the status of a Pod.
    pub(crate) async fn pod_status(&self, name: &str, status: &Value) {
        let (params, pods) = (PatchParams::default(), self.pods());
        let patch = Patch::Merge(json!({"status": status}));
        pods.patch_status(name, &params, &patch).await.unwrap();
    }
}

/// The settings of the controller.
pub(crate) fn settings() -> JobSettings {
    JobSettings {
        pods: PodSettings {
            worker_host_network: false,
            avoid_failed_nodes: false,
            launcher_image: "ipu-operator.local/ipu-operator:test".to_owned(),
            launcher_image_pull_policy: None,
            agent_delivery: AgentDelivery::Init,
            launcher_resources: None,
            launcher_policy: None,
            start_timeout: Some(Duration::from_mins(10)),
        },
        max_ipus_per_job: 64,
        lost_node: Some(Duration::from_mins(10)),
        instance: None,
        scope: Scope::Cluster,
    }
}

/// The proxy: removes the finalizer of every released partition.
async fn let_go(partitions: Api<IPUPartition>, namespace: String) {
    let leaving = changes(&partitions, namespace)
        .filter(|found| ready(found.metadata.deletion_timestamp.is_some()));
    leaving
        .for_each(async |found| {
            let mut finalizers = found.finalizers().to_vec();
            finalizers.retain(|finalizer| finalizer != labels::PARTITION_FINALIZER);
            let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
            let (name, params) = (found.name_any(), PatchParams::default());
            // It can be gone already.
            let _ = partitions.patch(&name, &params, &patch).await;
        })
        .await;
}

/// The proxy: carries out every requested reset.
async fn reset(partitions: Api<IPUPartition>, namespace: String) {
    let asked = changes(&partitions, namespace).filter(|found| {
        let status = found.status.as_ref();
        let done = status.map_or(0, |status| status.observed_reset_generation);
        ready(done < found.spec.reset_generation)
    });
    asked
        .for_each(async |found| {
            // It can be gone already.
            let _ = reset_is_done(&partitions, &found).await;
        })
        .await;
}

async fn reset_is_done(
    partitions: &Api<IPUPartition>,
    found: &IPUPartition,
) -> Result<IPUPartition, kube::Error> {
    let done = found.spec.reset_generation;
    let status = Patch::Merge(json!({"status": {"observedResetGeneration": done}}));
    let (name, params) = (found.name_any(), PatchParams::default());
    partitions.patch_status(&name, &params, &status).await
}

/// Follows the partitions of one namespace's jobs. Restarts an interrupted watch.
fn changes(
    partitions: &Api<IPUPartition>,
    namespace: String,
) -> impl Stream<Item = IPUPartition> + use<> {
    let changes = watcher(partitions.clone(), watcher::Config::default());
    let changes = changes.default_backoff().applied_objects();
    let changes = changes.filter_map(async |change| change.ok());
    changes.filter(move |found| ready(found.spec.owner.namespace == namespace))
}
