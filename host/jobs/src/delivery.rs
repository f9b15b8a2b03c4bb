//! Finds out whether the nodes of the cluster can mount the agent's image, and lets new Pods mount
//! it only while all of them can (`agent.delivery: auto`).
//!
//! A node is known by the versions of its kubelet and its runtime. A probe, which is a Pod in the
//! namespace of the release, executes the agent of the mounted image on one node of each version.
//! Nothing is stored: a new leader probes again, and until then Pods have init containers, which
//! work everywhere.

mod choice;
mod execute;
mod probe;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use ipu_runtime::scope::watch::{cluster_wide, observe, readable};
use ipu_runtime::trimmed::Guarded;
use ipu_runtime::watch_store::Store;
use ipu_runtime::{clock, wait};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::choice::{Findings, NodeVersion, Nodes};
use crate::build::AgentDelivery;

/// Time between two looks whether a failed version is due again.
const LOOK: Duration = Duration::from_secs(30);

/// What probes are built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSettings {
    /// Namespace of the release.
    pub namespace: String,
    /// Start of the names of the release's objects.
    pub fullname: String,
    /// Name of the Pod of this process, with which its probes are deleted. `None`: it has none.
    pub pod_name: Option<String>,
    /// The image that contains `/ipu-agent`.
    pub image: String,
    /// Pull policy of that image. `None` uses the default of Kubernetes.
    pub pull_policy: Option<String>,
    /// Names of the pull secrets of the release.
    pub pull_secrets: Vec<String>,
}

impl ProbeSettings {
    /// There is one probe at a time.
    fn name(&self) -> String {
        format!("{}-agent-probe", self.fullname)
    }
}

/// Whether new Pods mount the agent's image because all nodes can. Cheap to clone; all clones have
/// the same value. At first they do not.
#[derive(Clone, Debug, Default)]
pub struct Mountable(Arc<AtomicBool>);

impl Mountable {
    /// Whether all nodes can mount the image.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: bool) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Follows the nodes and probes their versions until `stop`. It must run in the leader only.
pub async fn follow(
    client: Client,
    settings: &ProbeSettings,
    mountable: &Mountable,
    stop: &CancellationToken,
) {
    let nodes = watch::Sender::new(None);
    let follower = Follower {
        client: client.clone(),
        settings,
        mountable,
        findings: Findings::default(),
        said: None,
    };
    let following = future::join(
        follow_nodes(&client, &nodes),
        follower.run(nodes.subscribe()),
    );
    let _ = stop.run_until_cancelled(Box::pin(following)).await;
}

/// Keeps the versions of the nodes up to date. `None`: they are not listed yet.
async fn follow_nodes(client: &Client, known: &watch::Sender<Option<Nodes>>) {
    let events = cluster_wide::<Guarded<Node>>(client, watcher::Config::default());
    let mut store = Store::default();
    observe(readable(events), |event| {
        store.apply_event(
            event,
            |node| Some(node.name_any()),
            |_, node, _| NodeVersion::of(&node),
        );
        let listed = store.is_listed().then(|| store.objects().clone());
        known.send_if_modified(|known| {
            let is_changed = *known != listed;
            *known = listed;
            is_changed
        });
    })
    .await;
}

/// A probe in progress.
type Probe<'a> = BoxFuture<'a, (NodeVersion, Result<(), String>)>;

struct Follower<'a> {
    client: Client,
    settings: &'a ProbeSettings,
    mountable: &'a Mountable,
    findings: Findings,
    /// What was logged last.
    said: Option<String>,
}

impl<'a> Follower<'a> {
    /// Makes one probe at a time.
    async fn run(mut self, mut nodes: watch::Receiver<Option<Nodes>>) {
        let mut probe: Option<Probe<'a>> = None;
        loop {
            let known = nodes.borrow_and_update().clone().unwrap_or_default();
            self.choose(&known);
            if probe.is_none() {
                probe = self.next(&known);
            }
            tokio::select! {
                () = wait::changed(&mut nodes) => {}
                (version, result) = ended(&mut probe) => {
                    probe = None;
                    self.findings.record(version, result, &known, clock::now());
                }
                () = sleep(LOOK) => {}
            }
        }
    }

    fn next(&self, nodes: &Nodes) -> Option<Probe<'a>> {
        let (node, version) = self.findings.due(nodes, clock::now())?;
        let (client, settings) = (self.client.clone(), self.settings);
        let probe = async move { (version, execute::execute(client, settings, &node).await) };
        Some(probe.boxed())
    }

    fn choose(&mut self, nodes: &Nodes) {
        let (delivery, reason) = self.findings.choose(nodes);
        self.mountable.set(delivery == AgentDelivery::Image);
        if self.said.as_ref() != Some(&reason) {
            tracing::info!(?delivery, "the agent gets into new Pods by this: {reason}");
            self.said = Some(reason);
        }
    }
}

/// Awaits the end of a probe, if there is one.
async fn ended(probe: &mut Option<Probe<'_>>) -> (NodeVersion, Result<(), String>) {
    match probe {
        Some(probe) => probe.await,
        None => future::pending().await,
    }
}
