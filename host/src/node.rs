//! The process that checks one node, and the same checks once for admins.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use ipu_node::options::NodeOptions;
use ipu_node::text;
use ipu_runtime::api_client::ApiCalls;
use ipu_runtime::telemetry::LogArguments;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::shutdown;

/// Name of the subcommand.
pub const NAME: &str = "node";

/// Options of the process.
#[derive(Args, Clone, Debug)]
pub struct NodeArguments {
    /// Options of the log.
    #[command(flatten)]
    pub log: LogArguments,
    /// Options of the checks.
    #[command(flatten)]
    pub checks: NodeOptions,
    /// Seconds between two rounds of checks.
    #[arg(
        long,
        env = "IPU_OPERATOR_INTERVAL_SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub interval_seconds: u64,
}

/// Reason for the end of the process.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The process cannot listen for a signal.
    #[error("failed to listen for signals")]
    Signals(#[source] io::Error),
    /// No client of the API server could be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// The results cannot be printed.
    #[error("failed to print the results")]
    Print(#[source] io::Error),
    /// A check failed.
    #[error("the node {node} failed: {checks}")]
    Failed {
        /// The node.
        node: String,
        /// The names of the checks.
        checks: String,
    },
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(arguments: &NodeArguments) -> Result<(), NodeError> {
    let stop = CancellationToken::new();
    shutdown::on_signals(&stop).map_err(NodeError::Signals)?;
    let client = ApiCalls::default().client().await;
    let client = client.map_err(|source| NodeError::Client(Box::new(source)))?;
    let interval = Duration::from_secs(arguments.interval_seconds);
    ipu_node::run(client, &arguments.checks, interval, &stop).await;
    info!("the process ends");
    Ok(())
}

/// Checks the node once, and prints the results. Without a client, what the API server knows is
/// unknown.
pub async fn examine(
    client: Option<&Client>,
    options: &NodeOptions,
    out: &mut impl Write,
) -> Result<(), NodeError> {
    let results = ipu_node::examine(client, options).await;
    let printed = out.write_all(text::text(&results).as_bytes());
    printed
        .and_then(|()| out.flush())
        .map_err(NodeError::Print)?;
    let failed = text::failed(&results);
    if failed.is_empty() {
        return Ok(());
    }
    Err(NodeError::Failed {
        node: options.node.clone(),
        checks: failed.join(", "),
    })
}
