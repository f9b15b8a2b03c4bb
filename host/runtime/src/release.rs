//! Options of both processes of a release: its identity, and the paths of its policies.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use ipu_api::ipupolicy::PemSource;

use crate::cluster_domain::ClusterDomain;
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
    /// Names of the namespaces with the served jobs, separated by commas. Empty: the whole cluster.
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
    /// Folder for compiled guests. No other program may write to it.
    #[arg(long, env = "IPU_OPERATOR_COMPILE_CACHE_DIR")]
    pub compile_cache_dir: Option<PathBuf>,
    /// Folder in which modules outlive the Pod. Several Pods may share it.
    #[arg(long, env = "IPU_OPERATOR_MODULE_DIR")]
    pub module_dir: Option<PathBuf>,
    /// Public keys, as JSON: a list of objects with `pem`, `configMap` or `secret`, as in an
    /// IPUPolicy. One of them must have signed each module from outside the image. Empty: none is
    /// required.
    #[arg(
        long = "policy-required-keys",
        env = "IPU_OPERATOR_POLICY_REQUIRED_KEYS",
        default_value = "[]"
    )]
    pub required_keys: RequiredKeys,
    /// Name of this Pod, which identifies the replica.
    #[arg(long, env = "HOSTNAME")]
    pub pod_name: Option<String>,
}

/// The keys that the release requires for modules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequiredKeys(pub Vec<PemSource>);

impl FromStr for RequiredKeys {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text).map(Self)
    }
}

impl ReleaseOptions {
    /// Identity of this process among the replicas.
    pub fn replica_name(&self) -> String {
        let unnamed = || format!("process-{}", std::process::id());
        self.pod_name.clone().unwrap_or_else(unnamed)
    }

    /// Name of both webhook configurations. It identifies this release for others.
    pub fn configuration(&self) -> &str {
        let given = self.webhook_configuration.as_deref();
        given.unwrap_or(&self.fullname)
    }
}
