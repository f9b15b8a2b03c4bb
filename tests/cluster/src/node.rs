//! The first process of a node. It runs in network, mount, process and host-name namespaces of its
//! own, starts containerd, kubelet and kube-proxy there, and reaps orphaned processes. When it
//! ends, the kernel ends everything in the node. It restarts a killed kubelet.

use std::{
    io,
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub mod config;
pub mod mounts;
mod parts;
mod prepare;

use self::parts::Parts;
use crate::wait::WaitedTooLong;
use crate::{
    command::CommandError,
    files::{FileError, read},
    kubeconfig::ClientError,
    log_tail::LogTail,
    plan::API_SERVICE_IP,
};

/// Longest time until a part answers.
const PATIENCE: Duration = Duration::from_mins(2);

/// The configuration of a node. `up` writes it, and the node reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Name of the Node object and host name.
    pub name: String,
    /// Its address.
    pub ip: String,
    /// Addresses of its Pods.
    pub pod_range: String,
    /// The routes to the Pods of other nodes: range and gateway.
    pub routes: Vec<(String, String)>,
    /// Labels of the Node object.
    pub labels: String,
    /// Folder of its state.
    pub dir: PathBuf,
    /// Folder of the logs.
    pub logs: PathBuf,
    /// Folder of the certificates.
    pub pki: PathBuf,
    /// Kubeconfig of the kubelet.
    pub kubelet_kubeconfig: PathBuf,
    /// Kubeconfig of kube-proxy.
    pub proxy_kubeconfig: PathBuf,
    /// The program containerd; its shim is beside it.
    pub containerd: PathBuf,
    /// The program kubelet.
    pub kubelet: PathBuf,
    /// The program kube-proxy.
    pub kube_proxy: PathBuf,
    /// Folder of the CNI plug-ins.
    pub cni: PathBuf,
    /// Root of the unpacked Debian packages.
    pub debian: PathBuf,
}

/// The stage of a node. The node writes it to a file, which `up` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// containerd accepts images.
    Containerd,
    /// kubelet and kube-proxy run, and the API server's Service answers.
    Ready,
}

/// Reason for the end of a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The configuration of the node is invalid.
    #[error("failed to understand {}", path.display())]
    Spec {
        /// The file.
        path: PathBuf,
        /// The problem.
        #[source]
        source: serde_json::Error,
    },
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A mount failed.
    #[error(transparent)]
    Mount(#[from] mounts::MountError),
    /// There is no client of the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something of the node could not be set.
    #[error("failed to {action}")]
    System {
        /// The action.
        action: &'static str,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// A part did not answer in time.
    #[error(transparent)]
    TooLate(#[from] WaitedTooLong),
    /// A part of the node ended.
    #[error("{name} ended; {log}")]
    Ended {
        /// Name of the program.
        name: &'static str,
        /// The end of its log.
        log: LogTail,
    },
}

impl NodeSpec {
    /// Path of the file with the stage of the node.
    fn stage_file(dir: &Path) -> PathBuf {
        dir.join("stage")
    }

    /// The stage of the node in this folder.
    pub fn stage(dir: &Path) -> Option<Stage> {
        let text = read(&Self::stage_file(dir)).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn reach(&self, stage: Stage) -> Result<(), FileError> {
        crate::files::write_json(&Self::stage_file(&self.dir), &stage)
    }
}

/// Runs the node until a part of it ends.
pub fn run(spec: &Path) -> Result<(), NodeError> {
    let spec: NodeSpec = serde_json::from_str(&read(spec)?).map_err(|source| NodeError::Spec {
        path: spec.to_owned(),
        source,
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| NodeError::System {
            action: "start the asynchronous runtime",
            source,
        })?;
    let parts = runtime.block_on(start(&spec))?;
    drop(runtime);
    parts.reap()
}

/// Starts each part when its requirements are met.
async fn start(spec: &NodeSpec) -> Result<Parts, NodeError> {
    prepare::prepare(spec).await?;
    let mut parts = Parts::default();
    parts.start(spec, "containerd", &spec.containerd, containerd_args(spec))?;
    let socket = spec.dir.join("containerd.sock");
    parts
        .wait("containerd answers", async || {
            UnixStream::connect(&socket).is_ok()
        })
        .await?;
    spec.reach(Stage::Containerd)?;
    parts.wait_for_api_server(spec).await?;
    parts.start(spec, "kubelet", &spec.kubelet, kubelet_args(spec))?;
    parts.start(spec, "kube-proxy", &spec.kube_proxy, proxy_args(spec))?;
    parts
        .wait("the Service of the API server answers", async || {
            TcpStream::connect_timeout(&api_service(), Duration::from_secs(1)).is_ok()
        })
        .await?;
    spec.reach(Stage::Ready)?;
    Ok(parts)
}

fn containerd_args(spec: &NodeSpec) -> Vec<String> {
    let config = spec.dir.join("containerd.toml").display().to_string();
    vec!["--config".to_owned(), config, "--log-level=info".to_owned()]
}

fn kubelet_args(spec: &NodeSpec) -> Vec<String> {
    vec![
        format!("--config={}", spec.dir.join("kubelet.json").display()),
        format!("--kubeconfig={}", spec.kubelet_kubeconfig.display()),
        format!("--hostname-override={}", spec.name),
        format!("--node-ip={}", spec.ip),
        format!("--node-labels={}", spec.labels),
    ]
}

fn proxy_args(spec: &NodeSpec) -> Vec<String> {
    let config = spec.dir.join("kube-proxy.json");
    vec![format!("--config={}", config.display())]
}

fn api_service() -> std::net::SocketAddr {
    let ip = API_SERVICE_IP.parse().expect("the constant is an address");
    std::net::SocketAddr::new(ip, 443)
}
