//! Why a command of the plugin did not do its work.

use std::io;

use kube::config::KubeconfigError;

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    /// The kubeconfig cannot be used.
    #[error("failed to read the kubeconfig; check KUBECONFIG, --kubeconfig and --context")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    /// No client can be made of it.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// The API server did not give what was asked for.
    #[error("failed to read {what}")]
    Read {
        /// What was read.
        what: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The user may not list IPUPartitions.
    #[error(
        "top counts the IPUPartitions of the cluster, and you may not list them: {0}; an admin can bind the ClusterRole \
         ipu-operator-view with a ClusterRoleBinding"
    )]
    Denied(String),
    /// The watch ended for good.
    #[error("failed to watch {what}")]
    Watch {
        /// What was watched.
        what: &'static str,
        /// What the API server said.
        #[source]
        source: Box<kube::runtime::watcher::Error>,
    },
    /// There is no such object.
    #[error(
        "there is no {kind} {name} in namespace {namespace}; kubectl get {plural} --namespace {namespace} lists them, and \
         --namespace names another namespace"
    )]
    NotFound {
        /// Kind of the object.
        kind: &'static str,
        /// Name of its kind in commands.
        plural: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The IPUs of a V-IPU controller belong to all namespaces.
    #[error(
        "--namespace {0} does not go with `top controllers`: the IPUs of a V-IPU controller belong to all namespaces; \
         omit it, or use `top jobs` or `top namespaces`"
    )]
    NamespaceOfControllers(String),
    /// The result cannot be written as JSON.
    #[error("failed to write JSON")]
    Json(#[source] serde_json::Error),
    /// The result cannot be written as YAML.
    #[error("failed to write YAML")]
    Yaml(#[source] serde_saphyr::ser_error::Error),
    /// Standard output is closed or full.
    #[error("failed to write to standard output")]
    Write(#[source] io::Error),
}

impl KubectlError {
    /// Whether a reader such as `head` has closed standard output: it has what it wants.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
