//! An API server with Kueue, the operator's processes, two simulated V-IPU controllers, and players
//! for the kubelet and the garbage collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tests::kueue::objects::{QUEUE_LABEL, cluster_queue, local_queue, resource_flavor};
use tests::kueue::workload::{Workload, of_job, reserved_ipus, workloads};
use tests::kueue::{Kueue, apply};
use tokio::task::JoinSet;
use vipu_simulator::pod::Timings;
use vipu_simulator::{Options, Server, Simulator};

use super::players::{collect_garbage, run_pods, watch_over};
use crate::cut_off::Writes;
use crate::front::Front;
use crate::processes::{Installation, RELEASE, Running};

/// Namespace of the jobs.
pub(crate) const NAMESPACE: &str = "default";

/// Name of the ClusterQueue, and of its LocalQueue.
pub(crate) const QUEUE: &str = "team";

/// Name of the flavor of all nodes.
pub(crate) const FLAVOR: &str = "any";

/// Longer than any test runs.
const ENDLESS: u64 = 3_600_000;

pub(crate) struct Fixture {
    // Fields drop in this order: each actor ends before the object that it acts on.
    players: JoinSet<()>,
    controller: Option<Running>,
    proxy: Option<Running>,
    /// What the operator's processes take for the API server, if it is not the real one.
    front: Option<Front>,
    pub(crate) kueue: Kueue,
    pub(crate) installation: Installation,
    /// The second V-IPU controller, with the label `ipunode=pod2`. The first one belongs to the
    /// installation.
    pub(crate) other: Simulator,
    most_taken: Arc<AtomicU32>,
}

impl Fixture {
    /// Starts everything, with a ClusterQueue of this quota of IPUs.
    pub(crate) async fn with_quota(ipus: u32) -> Self {
        Self::with_queue(cluster_queue(QUEUE, &[(FLAVOR, ipus)])).await
    }

    /// Starts everything, with this ClusterQueue, whose name is `QUEUE`.
    pub(crate) async fn with_queue(queue: Value) -> Self {
        Self::with_configuration(queue, &json!({})).await
    }

    /// The same, with changes to the Configuration of Kueue's manager.
    pub(crate) async fn with_configuration(queue: Value, changes: &Value) -> Self {
        let installation = Installation::new().await;
        let other = Simulator::start(Options::quick("pod2", 64)).await.unwrap();
        list_both(&installation, &other).await;
        let kueue = Kueue::start_with(&installation.plane, changes)
            .await
            .unwrap();
        let mut fixture = Self {
            players: JoinSet::new(),
            controller: None,
            proxy: None,
            front: None,
            kueue,
            other,
            most_taken: Arc::default(),
            installation,
        };
        let servers = [&fixture.installation.simulator, &fixture.other];
        let servers = servers.map(|one| Arc::clone(&one.server));
        let most_taken = Arc::clone(&fixture.most_taken);
        fixture.players.spawn(watch_over(servers, most_taken));
        let client = fixture.installation.client.clone();
        fixture.players.spawn(collect_garbage(client));
        for object in [
            resource_flavor(FLAVOR, &[]),
            queue,
            local_queue(NAMESPACE, QUEUE, QUEUE),
        ] {
            fixture.apply(&object).await;
        }
        fixture.start_operator().await;
        fixture.once_suspending().await;
        fixture
    }

    /// The admin applies an object of Kueue.
    pub(crate) async fn apply(&self, object: &Value) {
        apply(&self.installation.client, object).await.unwrap();
    }

    pub(crate) async fn start_operator(&mut self) {
        self.proxy = Some(self.installation.proxy("proxy", Vec::new()).await);
        self.controller = Some(self.installation.controller("controller", Vec::new()).await);
    }

    /// Kills the operator's processes, and starts new ones with these writes.
    pub(crate) async fn restart_with(&mut self, writes: &Writes) {
        self.kill_operator();
        let front = Front::start(writes.client(&self.installation.client)).await;
        self.installation.reach_at(front.url());
        self.front = Some(front);
        self.start_operator().await;
    }

    /// The port of the proxy's REST API in plain text.
    pub(crate) fn rest(&self) -> u16 {
        self.proxy.as_ref().unwrap().port
    }

    /// Kills both processes of the operator.
    pub(crate) fn kill_operator(&mut self) {
        self.controller = None;
        self.proxy = None;
    }

    /// The kubelet: runs every Pod from now on, and completes it at once if `ends`.
    pub(crate) fn run_pods(&mut self, ends: bool) {
        let pods = self.installation.pods();
        self.players.spawn(run_pods(pods, ends));
    }

    /// Waits until a new job with a queue is suspended: the operator has noticed Kueue.
    async fn once_suspending(&self) {
        let probe: IPUJob = serde_json::from_value(job("probe", 1)).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually("the operator notices Kueue", async || {
            match self.installation.jobs().create(&dry_run, &probe).await {
                Ok(created) => Seen::when(created.spec.suspend, |suspend| *suspend == Some(true)),
                Err(error) => Seen::of_error(&error),
            }
        })
        .await;
    }

    /// The user submits a job for this number of IPUs.
    pub(crate) async fn submit(&self, name: &str, ipus: u32) {
        self.installation.submit(&job(name, ipus)).await;
    }

    /// The user deletes a job.
    pub(crate) async fn delete(&self, name: &str) {
        let jobs = self.installation.jobs();
        jobs.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn pod(&self, name: &str) -> Pod {
        self.installation.pods().get(name).await.unwrap()
    }

    /// The user deletes a Pod, without a grace period.
    pub(crate) async fn delete_pod(&self, name: &str) {
        let at_once = DeleteParams::default().grace_period(0);
        let pods = self.installation.pods();
        pods.delete(name, &at_once).await.unwrap();
    }

    /// Completes the program of a job's only worker.
    pub(crate) async fn end(&self, job: &str) {
        self.installation.ends(&naming::worker(job, 0)).await;
        self.installation.once(job, JobState::Completed).await;
    }

    pub(crate) async fn once_running(&self, job: &str) {
        self.installation.once(job, JobState::Running).await;
    }

    /// Returns the Workload of a job once it `is_so`.
    pub(crate) async fn once(
        &self,
        job: &str,
        what: &str,
        is_so: impl Fn(&Workload) -> bool,
    ) -> Workload {
        eventually(&format!("the Workload of {job} {what}"), async || {
            let found = of_job(&self.installation.client, NAMESPACE, job).await;
            Seen::first(found, &is_so)
        })
        .await
    }

    /// Waits until Kueue reports that it has no quota for a job.
    pub(crate) async fn once_waiting(&self, job: &str) -> Workload {
        self.once(job, "waits for quota", |one| {
            let message = one.message("QuotaReserved");
            !one.is("QuotaReserved") && message.contains("insufficient unused quota")
        })
        .await
    }

    /// Deactivates the Workload of a job, or activates it again.
    pub(crate) async fn set_active(&self, job: &str, active: bool) {
        let workload = self.once(job, "is there", |_| true).await;
        let patch = Patch::Merge(json!({"spec": {"active": active}}));
        let (workloads, params) = (
            workloads(&self.installation.client, NAMESPACE),
            PatchParams::default(),
        );
        let name = workload.name();
        let patched = workloads.patch(&name, &params, &patch);
        patched.await.unwrap();
    }

    /// Waits until a job has no Pod, no partition and no quota.
    pub(crate) async fn once_released(&self, job: &str) {
        let worker = naming::worker(job, 0);
        eventually(&format!("{job} has no Pod and no partition"), async || {
            let pod = self.installation.pods().get_opt(&worker).await.unwrap();
            let partitions = self.installation.partitions().await.into_iter();
            let partitions = partitions.filter(|(owner, _)| owner == job).count();
            Seen::when((pod.map(|pod| pod.metadata.uid), partitions), |found| {
                *found == (None, 0)
            })
        })
        .await;
        self.once(job, "holds no quota", |one| {
            one.admission().is_none() && !one.is("QuotaReserved")
        })
        .await;
    }

    /// Waits until no object of a deleted job is left, including its Workload.
    pub(crate) async fn once_gone(&self, job: &str) {
        eventually(&format!("no object of {job} is left"), async || {
            let found = self.installation.jobs().get_opt(job).await.unwrap();
            let workloads = of_job(&self.installation.client, NAMESPACE, job)
                .await
                .unwrap();
            let partitions = self.installation.partitions().await.into_iter();
            let partitions = partitions.filter(|(owner, _)| owner == job).count();
            let left = (found.is_some(), workloads.len(), partitions);
            Seen::when(left, |left| *left == (false, 0, 0))
        })
        .await;
    }

    /// Waits until the ClusterQueue reports that this many IPUs are reserved, because its status
    /// follows the Workloads with a delay.
    pub(crate) async fn once_reserved(&self, ipus: u64) {
        eventually(&format!("{ipus} IPUs of quota are reserved"), async || {
            Seen::when(self.reserved().await, |reserved| *reserved == ipus)
        })
        .await;
    }

    /// Waits until the V-IPU controllers have partitions of this many IPUs.
    pub(crate) async fn once_taken(&self, ipus: u32) {
        eventually(&format!("{ipus} IPUs are in partitions"), async || {
            Seen::when(self.taken(), |taken| *taken == ipus)
        })
        .await;
    }

    /// Returns the IPUs that the ClusterQueue reports as reserved at this moment.
    pub(crate) async fn reserved(&self) -> u64 {
        let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "ClusterQueue");
        let resource = ApiResource::from_gvk(&kind);
        let queues: Api<DynamicObject> = Api::all_with(self.installation.client.clone(), &resource);
        reserved_ipus(&queues.get(QUEUE).await.unwrap())
    }

    /// Returns the status of a job.
    pub(crate) async fn status(&self, job: &str) -> String {
        let found = self.installation.jobs().get(job).await.unwrap();
        serde_json::to_string(&found.status).unwrap()
    }

    /// Returns the largest number of IPUs in partitions so far, or since `count_anew`.
    pub(crate) fn most_taken(&self) -> u32 {
        self.most_taken.load(Ordering::Relaxed)
    }

    /// Counts the maximum of IPUs from now on. When a user deactivates a Workload, Kueue 0.19
    /// treats its quota as free before it evicts the Workload (`Update` of
    /// `pkg/controller/core/workload_controller.go`). So two jobs may have IPUs until the partition
    /// of the first one is removed.
    pub(crate) fn count_anew(&self) {
        self.most_taken.store(0, Ordering::Relaxed);
    }

    /// Returns the IPUs in partitions now.
    pub(crate) fn taken(&self) -> u32 {
        taken(&self.installation.simulator.server) + taken(&self.other.server)
    }

    /// Makes the first V-IPU controller start operations without finishing them, or finish them as
    /// quickly as before.
    pub(crate) fn hold(&self, forming: bool, removing: bool) {
        let quick = Options::quick("", 1).timings;
        let held = |is_held: bool, quick: u64| if is_held { ENDLESS } else { quick };
        let timings = Timings {
            forming_ms: held(forming, quick.forming_ms),
            removing_ms: held(removing, quick.removing_ms),
            ..quick
        };
        self.installation.simulator.server.with(|world, now| {
            world.pod.timings = timings;
            if !forming && !removing {
                world.pod.finish(now);
            }
        });
    }
}

/// A queued job of one worker for this number of IPUs. Its template is as clients and users write
/// it, and Kueue writes it in another way: its quantities have no canonical form.
pub(crate) fn job(name: &str, ipus: u32) -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": ipus.to_string(),
            "workers": {"template": {"metadata": {"creationTimestamp": null}, "spec": {
                "containers": [{
                    "name": "main", "image": "program:1",
                    "resources": {"requests": {"cpu": "0.5", "memory": "2048Mi"}},
                }],
            }}},
        },
    })
}

/// The ClusterQueue with a quota of 4 IPUs and this stop policy.
pub(super) fn queue_with(stop_policy: &str) -> Value {
    let mut queue = cluster_queue(QUEUE, &[(FLAVOR, 4)]);
    queue["spec"]["stopPolicy"] = json!(stop_policy);
    queue
}

/// The admin lists both V-IPU controllers, and a node reaches the second one.
async fn list_both(installation: &Installation, other: &Simulator) {
    let maps: Api<ConfigMap> = Api::namespaced(installation.client.clone(), RELEASE);
    let first = installation.simulator.address;
    let list = format!("{first}:ipunode=pod1,{}:ipunode=pod2", other.address);
    let patch = Patch::Merge(json!({"data": {"controllers.yaml": list}}));
    let (name, params) = (
        format!("{RELEASE}-vipu-controllers"),
        PatchParams::default(),
    );
    maps.patch(&name, &params, &patch).await.unwrap();
    let node = json!({"metadata": {"name": "node2", "labels": {"ipunode": "pod2"}}});
    let node: Node = serde_json::from_value(node).unwrap();
    let nodes: Api<Node> = Api::all(installation.client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
}

pub(super) fn taken(server: &Server) -> u32 {
    server.with(|world, now| {
        let partitions = world.pod.partitions(now);
        partitions.map(|partition| partition.block.size).sum()
    })
}

/// The Workloads of all jobs.
pub(crate) async fn all_workloads(client: &Client) -> Vec<Workload> {
    let api = workloads(client, NAMESPACE);
    let all = api.list(&ListParams::default()).await.unwrap();
    all.into_iter().map(Workload).collect()
}
