//! The options of the vipu-proxy process.

use std::time::Duration;

use clap::{ArgAction, Args};
use ipu_partitions::sweep;
use ipu_placement::backfill::BACKFILL_LIMIT;
use ipu_runtime::lease;
use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::telemetry::LogArguments;
use vipu_client::AuthOptions;

use super::SecureOptions;

/// Options of the vipu-proxy process.
#[derive(Clone, Debug, Args)]
pub struct ProxyArguments {
    /// Options of the log.
    #[command(flatten)]
    pub log: LogArguments,
    /// Options of its work.
    #[command(flatten)]
    pub proxy: ProxyOptions,
}

/// Options of the work of the process.
#[derive(Args, Clone, Debug)]
pub struct ProxyOptions {
    /// The release.
    #[command(flatten)]
    pub release: ReleaseOptions,
    /// Port of the plain REST API.
    #[arg(long, env = "IPU_OPERATOR_PORT", default_value_t = 8080)]
    pub port: u16,
    /// Port of the kubelet's probes, which serves nothing else.
    #[arg(long, env = "IPU_OPERATOR_PROBE_PORT", default_value_t = 8081)]
    pub probe_port: u16,
    /// The port with TLS.
    #[command(flatten)]
    pub secure: SecureOptions,
    /// ConfigMap that lists the V-IPU controllers. Missing: `<fullname>-vipu-controllers`.
    #[arg(long, env = "IPU_OPERATOR_CONTROLLERS_CONFIGMAP")]
    pub controllers_configmap: Option<String>,
    /// ConfigMap with the summary of which job has which partition.
    #[arg(
        long,
        env = "IPU_OPERATOR_TRACKER_CONFIGMAP",
        default_value = "ipu-partitions-tracker"
    )]
    pub tracker_configmap: String,
    /// Longest time for a V-IPU controller to make, remove or reset a partition, in seconds.
    #[arg(
        long,
        env = "IPU_OPERATOR_VIPU_TIMEOUT_SECONDS",
        default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub vipu_timeout_seconds: u64,
    /// Seconds for which smaller requests may be placed before a waiting one. After that, capacity
    /// is reserved for it.
    #[arg(
        long,
        env = "IPU_OPERATOR_BACKFILL_LIMIT_SECONDS",
        default_value_t = BACKFILL_LIMIT.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub backfill_limit_seconds: u64,
    /// Whether nodes advertise the IPUs of their V-IPU controllers as a resource.
    #[arg(long, env = "IPU_OPERATOR_ADVERTISE", action = ArgAction::Set, default_value_t = true)]
    pub advertise: bool,
    /// Whether placement counts a node as blocked that failed a check of ipu-node.
    #[arg(long, env = "IPU_OPERATOR_AVOID_FAILED_NODES", action = ArgAction::Set, default_value_t = false)]
    pub avoid_failed_nodes: bool,
    /// Whether the metrics contain the IPU-Machines of partitions, which are read from the V-IPU
    /// controllers.
    #[arg(long, env = "IPU_OPERATOR_EXPORT_MACHINES", action = ArgAction::Set, default_value_t = false)]
    pub export_machines: bool,
    /// TLS and credentials for the V-IPU controllers.
    #[command(flatten)]
    pub access: AuthOptions,
    /// Times without an option.
    #[arg(skip)]
    pub times: Times,
}

impl ProxyOptions {
    /// Name of the ConfigMap that lists the V-IPU controllers.
    pub(crate) fn controllers_configmap(&self) -> String {
        let named = || format!("{}-vipu-controllers", self.release.fullname);
        self.controllers_configmap.clone().unwrap_or_else(named)
    }
}

/// Times without an option; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Longest time of a partition in use in ERROR before it counts as lost. Users' programs reset
    /// their own partitions.
    pub in_error: Duration,
    /// Time for which a gang holds partitions while its other members find no free capacity.
    pub gang_patience: Duration,
    /// Times of the sweep.
    pub sweep: sweep::Times,
    /// Wait of another replica after the last renewal of the Lease.
    pub lease: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            in_error: Duration::from_secs(30),
            gang_patience: Duration::from_mins(2),
            sweep: sweep::Times::default(),
            lease: lease::LEASE_DURATION,
        }
    }
}
