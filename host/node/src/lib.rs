//! Checks whether Pods on one node can use IPUs, and reports it on the Node, where admins and
//! schedulers look.
//!
//! Entry points:
//! - [`run`] checks the node periodically, and writes a condition, a label, an annotation and an
//!   event when they change.
//! - [`examine`] checks it once, writes nothing, and returns the results; [`text`] prints them.
//! - [`facts`] is what was read of the node, [`requirements`] what the admin requires, [`checks`]
//!   compares both, [`verdict`] sums up, and [`update`] makes the patch of the Node. These are
//!   pure.
//! - `host` reads the files of the node, [`parse`] understands them, `connect` connects to V-IPU
//!   controllers, and `cluster` speaks to the API server.
//!
//! It needs no privilege: it reads files that every user may read, from read-only mounts, and opens
//! TCP connections. It writes the status of its own Node and events, and must not know jobs,
//! partitions, policies or webhooks.
#![forbid(unsafe_code)]

pub mod checks;
mod cluster;
mod connect;
pub mod facts;
mod host;
pub mod options;
pub mod parse;
pub mod requirements;
pub mod text;
pub mod update;
pub mod verdict;

use std::time::Duration;

use ipu_api::node_check::CheckResult;
use ipu_runtime::clock;
use ipu_runtime::events::EventQueue;
use ipu_text::explain;
use kube::Client;
use tokio_util::sync::CancellationToken;

use self::cluster::ClusterError;
use self::facts::{Facts, controllers_of};
use self::options::NodeOptions;
use self::verdict::Verdict;

/// Name of this process in events.
const REPORTER: &str = "ipu-node";

/// Checks the node until `stop`.
pub async fn run(
    client: Client,
    options: &NodeOptions,
    interval: Duration,
    stop: &CancellationToken,
) {
    let name = Some(options.node.as_str());
    let events = EventQueue::new(&client, REPORTER, name, Default::default());
    let checking = async {
        loop {
            if let Err(error) = check(&client, options, &events).await {
                tracing::warn!(
                    error = explain(&error),
                    "failed to report the checks of this node"
                );
            }
            tokio::time::sleep(interval).await;
        }
    };
    stop.run_until_cancelled(checking).await;
    events.close().await;
}

/// Checks the node once, and writes what has changed.
async fn check(
    client: &Client,
    options: &NodeOptions,
    events: &EventQueue,
) -> Result<(), ClusterError> {
    let node = cluster::node(client, &options.node).await?;
    let results = examine_node(Some(client), options, Ok(facts::NodeFacts::of(&node))).await;
    let verdict = Verdict::of(&results);
    let Some(change) = update::change(&node, &verdict, &results, clock::now()) else {
        return Ok(());
    };
    cluster::report(client, &options.node, &change.patch).await?;
    tracing::info!(
        ready = verdict.status.word(),
        reason = verdict.reason,
        "reported the checks of this node"
    );
    let event = change.event.into_iter().collect();
    events.publish(cluster::reference(&node), event);
    Ok(())
}

/// Checks the node once. Without a client, what the API server knows is unknown.
pub async fn examine(client: Option<&Client>, options: &NodeOptions) -> Vec<CheckResult> {
    let node = match client {
        Some(client) => cluster::node(client, &options.node).await,
        None => Err(ClusterError::NoClient),
    };
    let node = node.map(|node| facts::NodeFacts::of(&node));
    let node = node.map_err(|error| explain(&error));
    examine_node(client, options, node).await
}

async fn examine_node(
    client: Option<&Client>,
    options: &NodeOptions,
    node: facts::Fact<facts::NodeFacts>,
) -> Vec<CheckResult> {
    let controllers = host::controllers(&options.controllers).await;
    let reachable = match (&node, &controllers) {
        (Ok(node), Ok(all)) => controllers_of(all, &node.labels),
        _ => Vec::new(),
    };
    let timeout = Duration::from_secs(options.connect_timeout_seconds);
    let connections = connect::all(&reachable, timeout).await;
    let networks = &options.requirements.networks;
    let facts = Facts {
        node,
        connections,
        networks: cluster::networks(client, networks).await,
        files: host::files(options).await,
        controllers,
    };
    checks::results(&facts, &options.requirements)
}
