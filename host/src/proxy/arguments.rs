//! The command line of the vipu-proxy process.

use clap::Args;

use super::ProxyOptions;
use ipu_runtime::telemetry::LogArguments;

/// Options of the vipu-proxy process.
#[derive(Clone, Debug, Args)]
pub struct ProxyArguments {
    /// How the log is written.
    #[command(flatten)]
    pub log: LogArguments,
    /// What the process does.
    #[command(flatten)]
    pub proxy: ProxyOptions,
}
