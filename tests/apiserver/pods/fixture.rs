//! The chart's webhook and policy of native Pods, the reconciler, a vipu-proxy and simulated V-IPU
//! controllers.

use cluster::kubeconfig;
use cluster::wait::{Seen, eventually};
use ipu_pods::NativePodSettings;
use ipu_runtime::work_queue::metrics::Reconciles;
use k8s_openapi::api::core::v1::{Namespace, Pod, PodCondition, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::chart::arguments::rendered;
use crate::partition::fixture::Fixture;
use crate::partition::install::apply;
use crate::webhook::fixture::{Owned, Webhooks, install};

/// The account of the controller in the chart, whose writes the policies of the chart let pass.
const OPERATOR: &str = "system:serviceaccount:ipu:ipu-operator-controller-manager";

/// A fixture of partitions, with the objects that native Pods need.
pub(crate) struct Native {
    // Fields drop in this order: the proxy ends before the API server.
    pub(crate) fixture: Fixture,
    pub(crate) webhooks: Owned,
    /// The client of the operator.
    pub(crate) operator: Client,
    reconciler: Option<JoinHandle<()>>,
}

impl Native {
    /// Starts controllers of these sizes, an API server with webhooks, and the reconciler.
    pub(crate) async fn start(sizes: &[u32]) -> Self {
        let mut native = Self::without_reconciler(sizes).await;
        native.start_reconciler(NativePodSettings::default());
        native
    }

    /// The same without the reconciler.
    pub(crate) async fn without_reconciler(sizes: &[u32]) -> Self {
        let webhooks = Webhooks::start().await;
        let mut fixture = Fixture::on(webhooks.control_plane(), sizes).await;
        register(&fixture.client).await;
        fixture.start_proxy().await;
        let admin = Some("system:masters");
        let operator = kubeconfig::client_in(&fixture.kubeconfig, OPERATOR, admin).await;
        Self {
            fixture,
            webhooks,
            operator: operator.unwrap(),
            reconciler: None,
        }
    }

    pub(crate) fn start_reconciler(&mut self, settings: NativePodSettings) {
        self.reconciler = Some(reconciler_with(self.operator.clone(), settings));
    }

    /// Aborts the reconciler between any two of its requests.
    pub(crate) async fn kill_reconciler(&mut self) {
        if let Some(reconciler) = self.reconciler.take() {
            reconciler.abort();
            assert!(reconciler.await.unwrap_err().is_cancelled());
        }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        pods(&self.fixture.client, "default")
    }

    /// Creates a namespace in which Pods can be created.
    pub(crate) async fn namespace(&self, name: &str) -> Api<Pod> {
        let namespace: Namespace = object(&json!({"metadata": {"name": name}}));
        apply(Api::all(self.fixture.client.clone()), &namespace).await;
        let account: ServiceAccount = object(&json!({"metadata": {"name": "default"}}));
        apply(Api::namespaced(self.fixture.client.clone(), name), &account).await;
        pods(&self.fixture.client, name)
    }

    /// Returns the Pod once it `is_so`.
    pub(crate) async fn once(&self, name: &str, what: &str, is_so: impl Fn(&Pod) -> bool) -> Pod {
        once(&self.pods(), name, what, is_so).await
    }

    /// Returns the Pod once it has its partition and no gate.
    pub(crate) async fn once_bound(&self, name: &str) -> Pod {
        self.once(name, "it has its partition", is_bound).await
    }

    /// Waits until a policy refuses this change of the Pod. The API server follows a new policy
    /// with a short delay.
    pub(crate) async fn once_kept(&self, name: &str, change: &Value) {
        let dry_run = PatchParams::default().dry_run();
        let change = Patch::Merge(change);
        eventually("the policy keeps the request", async || {
            let changed = self.pods().patch(name, &dry_run, &change).await;
            Seen::when(changed.err().map(|error| error.to_string()), |error| {
                error
                    .as_ref()
                    .is_some_and(|error| error.contains("create it again"))
            })
        })
        .await;
    }

    /// Waits until no IPUPartition is left, and no partition on any controller.
    pub(crate) async fn once_nothing_is_left(&self) {
        eventually("no IPUPartition is left", async || {
            let left = self.fixture.partitions().list(&ListParams::default()).await;
            Seen::when(left.unwrap().items, Vec::is_empty)
        })
        .await;
        let is_empty = |ids: &[Vec<String>]| ids.iter().all(Vec::is_empty);
        self.fixture.once_ids("nothing is left", is_empty).await;
    }
}

/// A reconciler with this client.
pub(crate) fn reconciler(client: Client) -> JoinHandle<()> {
    reconciler_with(client, NativePodSettings::default())
}

fn reconciler_with(client: Client, settings: NativePodSettings) -> JoinHandle<()> {
    tokio::spawn(async move {
        let stop = CancellationToken::new();
        ipu_pods::run(client, settings, &Reconciles::default(), stop).await;
    })
}

impl Drop for Native {
    fn drop(&mut self) {
        if let Some(reconciler) = &self.reconciler {
            reconciler.abort();
        }
    }
}

/// Returns the Pod once it `is_so`.
pub(crate) async fn once(
    pods: &Api<Pod>,
    name: &str,
    what: &str,
    is_so: impl Fn(&Pod) -> bool,
) -> Pod {
    eventually(&format!("{name}: {what}"), async || {
        let pod = pods.get_opt(name).await.unwrap();
        let state = format!("{pod:#?}");
        pod.filter(|pod| is_so(pod)).ok_or(state)
    })
    .await
}

/// Returns the Pod once its condition has this reason, and the message of the condition.
pub(crate) async fn once_reported(pods: &Api<Pod>, name: &str, reason: &str) -> String {
    let is_reported = |pod: &Pod| {
        let condition = condition(pod);
        condition.is_some_and(|condition| condition.reason.as_deref() == Some(reason))
    };
    let pod = once(pods, name, reason, is_reported).await;
    condition(&pod).unwrap().message.unwrap_or_default()
}

pub(crate) fn condition(pod: &Pod) -> Option<PodCondition> {
    let conditions = pod.status.clone()?.conditions?;
    let mut ours = conditions.into_iter();
    ours.find(|one| one.type_ == "graphcore.ai/PartitionReady")
}

pub(crate) fn is_bound(pod: &Pod) -> bool {
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_none_or(Vec::is_empty) && pod.labels().contains_key("graphcore.ai/partition-id")
}

pub(crate) async fn delete(pods: &Api<Pod>, name: &str) {
    pods.delete(name, &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
}

/// A Pod with these annotations.
pub(crate) fn pod(name: &str, annotations: &Value) -> Pod {
    object(&json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "none"}],
        },
    }))
}

/// Creates a Pod that requests this number of IPUs.
pub(crate) async fn request(pods: &Api<Pod>, name: &str, ipus: &str) -> kube::Result<Pod> {
    let pod = pod(name, &json!({"graphcore.ai/ipu": ipus}));
    pods.create(&PostParams::default(), &pod).await
}

fn object<K: serde::de::DeserializeOwned>(json: &Value) -> K {
    serde_json::from_value(json.clone()).unwrap()
}

fn pods(client: &Client, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.clone(), namespace)
}

/// Installs the policies of the chart, and waits until its webhooks for Pods are called.
async fn register(client: &Client) {
    for template in ["native-pods", "pod-keys"] {
        let render = tokio::task::spawn_blocking(move || rendered(template, None));
        for object in render.await.unwrap() {
            install(client, &object).await;
        }
    }
    let probed = pods(client, "default");
    eventually("the API server calls the webhook of Pods", async || {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let probe = pod("probe", &json!({"graphcore.ai/ipu": "none"}));
        let answer = probed.create(&dry_run, &probe).await;
        Seen::when(
            answer.err(),
            |error| matches!(error, Some(kube::Error::Api(status)) if status.code == 422),
        )
    })
    .await;
}
