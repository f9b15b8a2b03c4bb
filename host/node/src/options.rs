//! The options of the checks: the node, where its files are, and what it needs.

use std::path::PathBuf;

use clap::Args;

use crate::requirements::Requirements;

/// Options of the checks of a node.
#[derive(Args, Clone, Debug)]
pub struct NodeOptions {
    /// Name of this node.
    #[arg(long, env = "IPU_OPERATOR_NODE")]
    pub node: String,
    /// File with the list of V-IPU controllers.
    #[arg(
        long,
        env = "IPU_OPERATOR_CONTROLLERS",
        default_value = "/etc/ipu-operator/controllers.yaml"
    )]
    pub controllers: PathBuf,
    /// The node's /sys.
    #[arg(long, env = "IPU_OPERATOR_SYS_DIR", default_value = "/host/sys")]
    pub sys_dir: PathBuf,
    /// The node's folder with the configuration of the container network.
    #[arg(long, env = "IPU_OPERATOR_CNI_DIR", default_value = "/host/cni")]
    pub cni_dir: PathBuf,
    /// The /proc of a container on the node.
    #[arg(long, env = "IPU_OPERATOR_PROC_DIR", default_value = "/proc")]
    pub proc_dir: PathBuf,
    /// Seconds after which a connection to a V-IPU controller fails.
    #[arg(
        long,
        env = "IPU_OPERATOR_CONNECT_TIMEOUT_SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=60)
    )]
    pub connect_timeout_seconds: u64,
    /// What the node needs.
    #[command(flatten)]
    pub requirements: Requirements,
}
