//! Failures of commands of the plugin.

use std::io;

use ipu_dashboard::error::DashboardError;
use kube::config::KubeconfigError;

/// Command with which an admin grants a user the right to cordon and drain V-IPU controllers.
const GRANT: &str = "an admin of the cluster can grant it: kubectl create clusterrole vipu-operate \
                     --verb=get,list,watch,patch --resource=vipucontrollers.graphcore.ai, and kubectl create \
                     clusterrolebinding vipu-operate --clusterrole=vipu-operate --user=USER";

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    /// The kubeconfig is not valid.
    #[error("failed to read the kubeconfig; check KUBECONFIG, --kubeconfig and --context")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    /// No client could be made from it.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// A read from the API server failed.
    #[error("failed to read {0}")]
    Read(String, #[source] Box<kube::Error>),
    /// The user may not list IPUPartitions.
    #[error(
        "top counts the IPUPartitions of the cluster, and you may not list them: {0}; an admin can bind the ClusterRole \
         ipu-operator-view with a ClusterRoleBinding"
    )]
    Denied(String),
    /// The user may not list VIPUControllers or IPUAccountings.
    #[error(
        "goodput sums up the IPUAccountings of VIPUControllers, and you may not list them: {0}; an admin can bind the \
         ClusterRole ipu-operator-view with a ClusterRoleBinding"
    )]
    AccountingDenied(String),
    /// The user may not list IPUJobs.
    #[error(
        "goodput --jobs lists the IPUJobs of all namespaces, or of that of --namespace, and you may not list them: {0}; name \
         your namespace, or an admin can bind the ClusterRole ipu-operator-view with a ClusterRoleBinding"
    )]
    JobsDenied(String),
    /// The user may not list nodes.
    #[error(
        "the results of the checks are on the nodes, and you may not list these: {0}; an admin of the cluster can grant it: \
         kubectl create clusterrole nodes-view --verb=list --resource=nodes, and kubectl create clusterrolebinding nodes-view \
         --clusterrole=nodes-view --user=USER"
    )]
    NodesDenied(String),
    /// There is no such node.
    #[error("there is no node {0}; kubectl ipu nodes lists those with IPUs")]
    NoNode(String),
    /// Checks of these nodes failed.
    #[error("checks failed on: {0}")]
    ChecksFailed(String),
    /// Jobs have only one output format.
    #[error("--jobs prints CSV: leave --output out, or give --output csv")]
    JobsFormat,
    /// The user lacks a right to VIPUControllers.
    #[error("you may not {verb} vipucontrollers.graphcore.ai: {words}; {GRANT}")]
    Forbidden {
        /// The verb.
        verb: &'static str,
        /// Message of the API server.
        words: String,
    },
    /// There is no such VIPUController.
    #[error("there is no VIPUController {0}; kubectl get vipucontrollers lists them")]
    NoController(String),
    /// No V-IPU controller has an object.
    #[error(
        "there are no VIPUControllers: the operator makes one for each V-IPU controller of its list; kubectl ipu version \
         shows whether an operator of this version runs"
    )]
    NoControllers,
    /// A VIPUController was not changed.
    #[error("failed to change the VIPUController {0}")]
    Change(String, #[source] Box<kube::Error>),
    /// The user stopped a drain with Ctrl-C. These VIPUControllers still have partitions.
    #[error(
        "interrupted: {0} continues to drain; kubectl ipu uncordon {0} ends that, and kubectl ipu drain {0} \
         waits again"
    )]
    Interrupted(String),
    /// A drain takes longer than `--timeout`. These VIPUControllers still have partitions.
    #[error(
        "--timeout is over, and {0} still has partitions: it continues to drain; kubectl ipu uncordon {0} ends \
         that, and kubectl ipu drain {0} waits again"
    )]
    DrainTimeout(String),
    /// The watch ended permanently.
    #[error("failed to watch {what}")]
    Watch {
        /// The watched resource.
        what: &'static str,
        /// Error of the API server.
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
    /// The page cannot be served.
    #[error(transparent)]
    Dashboard(#[from] DashboardError),
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
    /// The exit status of the plugin: as in shells, 128 and the number of the signal if there was
    /// one.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(_) => 130,
            _ => 1,
        }
    }

    /// Whether the API server does not serve the kind of a list.
    pub(crate) fn is_unknown_kind(&self) -> bool {
        let Self::Read(_, source) = self else {
            return false;
        };
        matches!(&**source, kube::Error::Api(status) if status.code == 404)
    }

    /// Whether a reader such as `head` has closed standard output, which is not an error.
    pub fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Write(error) | Self::Dashboard(DashboardError::Write(error)) => {
                error.kind() == io::ErrorKind::BrokenPipe
            }
            _ => false,
        }
    }
}
