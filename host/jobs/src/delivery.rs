//! Finds out whether the nodes of the cluster can mount the agent's image, and lets new Pods mount
//! it only while all of them can (`agent.delivery: auto`).
//!
//! A node is known by the versions of its kubelet and its runtime. A probe, which is a Pod in the
//! namespace of the release, executes the agent of the mounted image on one node of each version.
//! Nothing is stored: a new leader probes again, and until then Pods have init containers, which
//! work everywhere.

mod choice;
mod execute;
mod node;
mod probe;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use ipu_runtime::scope::watch::{cluster_wide, observe, readable};
use ipu_runtime::trimmed::Guarded;
use ipu_runtime::watch_store::Store;
use ipu_runtime::{clock, wait};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::choice::{Findings, Outcome};
use self::node::{KnownNode, NodeVersion, Nodes};
use crate::build::{AgentDelivery, PodSettings};

/// Period of the checks whether a failed version is due again.
const CHECK_PERIOD: Duration = Duration::from_secs(30);

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
    /// Applies the choice to the settings of new Pods.
    pub fn chosen<'a>(&self, settings: &'a PodSettings) -> Cow<'a, PodSettings> {
        if !self.0.load(Ordering::Relaxed) {
            return Cow::Borrowed(settings);
        }
        Cow::Owned(PodSettings {
            agent_delivery: AgentDelivery::Image,
            ..settings.clone()
        })
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
        logged_reason: None,
    };
    let following = future::join(
        follow_nodes(&client, &nodes),
        follower.run(nodes.subscribe()),
    );
    let _ = stop.run_until_cancelled(Box::pin(following)).await;
}

/// Keeps the nodes up to date. `None`: they are not listed yet. Heartbeats change nothing.
async fn follow_nodes(client: &Client, known: &watch::Sender<Option<Nodes>>) {
    let events = cluster_wide::<Guarded<Node>>(client, watcher::Config::default());
    let mut store = Store::default();
    observe(readable(events), |event| {
        let is_complete = matches!(event, Event::InitDone);
        let changes = store.apply_event(
            event,
            |node| Some(node.name_any()),
            |_, node, _| KnownNode::of(&node),
        );
        let mut changes = changes.iter();
        let is_news =
            changes.any(|change| store.objects().get(&change.key) != change.before.as_ref());
        if is_complete || (is_news && store.is_listed()) {
            known.send_replace(Some(store.objects().clone()));
        }
    })
    .await;
}

/// A probe in progress.
struct Probe<'a> {
    node: String,
    version: NodeVersion,
    node_changed: CancellationToken,
    outcome: BoxFuture<'a, Outcome>,
}

struct Follower<'a> {
    client: Client,
    settings: &'a ProbeSettings,
    mountable: &'a Mountable,
    findings: Findings,
    /// The reason of the last choice in the log.
    logged_reason: Option<String>,
}

/// A replica that has lost the leadership knows nothing of the nodes any more.
impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.mountable.set(false);
    }
}

impl<'a> Follower<'a> {
    /// Makes one probe at a time.
    async fn run(mut self, mut nodes: watch::Receiver<Option<Nodes>>) {
        let mut probe: Option<Probe<'a>> = None;
        loop {
            let known = nodes.borrow_and_update().clone();
            self.choose(known.as_ref());
            let known = known.unwrap_or_default();
            match &probe {
                None => probe = self.next(&known),
                Some(probe) => probe.cancel_if_obsolete(&known),
            }
            tokio::select! {
                () = wait::changed(&mut nodes) => {}
                outcome = ended(&mut probe) => {
                    if let Some(Probe { node, version, .. }) = probe.take() {
                        let known = nodes.borrow().clone().unwrap_or_default();
                        self.findings.record(&node, version, outcome, &known, clock::now());
                    }
                }
                () = sleep(CHECK_PERIOD) => {}
            }
        }
    }

    fn next(&self, nodes: &Nodes) -> Option<Probe<'a>> {
        let (node, version) = self.findings.due(nodes, clock::now())?;
        let (client, settings) = (self.client.clone(), self.settings);
        let node_changed = CancellationToken::new();
        let (on, changed) = (node.clone(), node_changed.clone());
        let outcome = async move { execute::execute(client, settings, &on, &changed).await };
        Some(Probe {
            node,
            version,
            node_changed,
            outcome: outcome.boxed(),
        })
    }

    fn choose(&mut self, nodes: Option<&Nodes>) {
        let (delivery, reason) = self.findings.choose(nodes);
        self.mountable.set(delivery == AgentDelivery::Image);
        if self.logged_reason.as_ref() != Some(&reason) {
            tracing::info!(?delivery, "the agent gets into new Pods by this: {reason}");
            self.logged_reason = Some(reason);
        }
    }
}

impl Probe<'_> {
    /// Cancels a probe that can show nothing any more, so that others need not wait for it.
    fn cancel_if_obsolete(&self, nodes: &Nodes) {
        let node = nodes.get(&self.node);
        if node.is_none_or(|node| node.version != self.version || !node.is_ready) {
            self.node_changed.cancel();
        }
    }
}

/// Awaits the outcome of a probe, if there is one.
async fn ended(probe: &mut Option<Probe<'_>>) -> Outcome {
    match probe {
        Some(probe) => (&mut probe.outcome).await,
        None => future::pending().await,
    }
}
