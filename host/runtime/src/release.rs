//! What both processes of a release are told: which release they belong to, and where its policies are.

use std::path::PathBuf;

use clap::Args;

use crate::certificates::ClusterDomain;
use crate::scope::Scope;

/// One of the two processes of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Reconciles IPUJobs, serves the webhooks, and activates versions of policies.
    Controller,
    /// Makes partitions, and serves REST.
    VipuProxy,
}

impl Process {
    /// The name of its subcommand.
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::VipuProxy => "vipu-proxy",
        }
    }
}

/// The release that a process belongs to.
#[derive(Args, Clone, Debug, Default)]
pub struct ReleaseOptions {
    /// Namespace of the release.
    #[arg(long, env = "IPU_OPERATOR_NAMESPACE")]
    pub namespace: String,
    /// Start of the names of the release's objects.
    #[arg(long, env = "IPU_OPERATOR_FULLNAME", default_value = "ipu-operator")]
    pub fullname: String,
    /// DNS domain of the cluster, for the names in the operator's certificates.
    #[arg(
        long,
        env = "IPU_OPERATOR_CLUSTER_DOMAIN",
        default_value = "cluster.local"
    )]
    pub cluster_domain: ClusterDomain,
    /// Whose jobs are served: names of namespaces with commas between them. Empty: those of the whole
    /// cluster.
    #[arg(
        long = "watch-namespaces",
        env = "IPU_OPERATOR_WATCH_NAMESPACES",
        default_value = ""
    )]
    pub scope: Scope,
    /// Name of both webhook configurations [default: <fullname>].
    #[arg(long, env = "IPU_OPERATOR_WEBHOOK_CONFIGURATION")]
    pub webhook_configuration: Option<String>,
    /// Folder of the built-in guests.
    #[arg(long, env = "IPU_OPERATOR_GUESTS_DIR", default_value = "/guests")]
    pub guests_dir: PathBuf,
    /// Folder for compiled guests, which nobody else may write to.
    #[arg(long, env = "IPU_OPERATOR_COMPILE_CACHE_DIR")]
    pub compile_cache_dir: Option<PathBuf>,
    /// Name of this Pod, by which replicas are told apart.
    #[arg(long, env = "HOSTNAME")]
    pub pod_name: Option<String>,
}

impl ReleaseOptions {
    /// By what this process is told from the other replicas.
    pub fn replica_name(&self) -> String {
        let unnamed = || format!("process-{}", std::process::id());
        self.pod_name.clone().unwrap_or_else(unnamed)
    }

    /// Name of both webhook configurations, by which other releases know this one.
    pub fn configuration(&self) -> &str {
        let given = self.webhook_configuration.as_deref();
        given.unwrap_or(&self.fullname)
    }
}
