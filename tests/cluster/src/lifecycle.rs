//! The cluster: two real nodes and a control plane, started and stopped as a whole.

use std::{io, os::unix::fs::symlink, path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::{Api, Client};

mod containerd;
mod control;
mod coredns;
mod down;
mod workers;

pub use self::{
    containerd::import,
    down::{down, is_there},
};
use crate::wait::until_or_ended;
use crate::{
    command::CommandError,
    files::{At, FileError, make_dir, remove},
    images::{self, Image, ImageError},
    kubeconfig::ClientError,
    kubernetes::Kubernetes,
    lock::{Lock, LockError},
    log_tail::LogTail,
    network::{self, Ip, NetworkError},
    pki::PkiError,
    plan::{NODES, bin, kubeconfig},
    post_mortem,
    process::Daemons,
    progress::Progress,
    settings::Settings,
    tools::{Tools, ToolsError},
};

/// Longest start of a part of the cluster on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

/// Failure to start or to end the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Another process uses the run folder.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tools are missing.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// An image could not be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// An image could not be imported on a node.
    #[error("failed to import the image {image} on {node}")]
    Import {
        /// Name of the image.
        image: String,
        /// Name of the node.
        node: &'static str,
        /// The cause.
        #[source]
        source: CommandError,
    },
    /// The machine's network could not be set up.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// etcd cannot listen.
    #[error("failed to find free ports on 127.0.0.1")]
    Ports(#[source] io::Error),
    /// The certificates could not be made.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// There is no client of the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server refused something.
    #[error("failed to {action}")]
    Api {
        /// The action.
        action: &'static str,
        /// The error.
        #[source]
        source: Box<kube::Error>,
    },
    /// A part ended.
    #[error("{name} ended; {log}")]
    Ended {
        /// Name of the part.
        name: String,
        /// The end of its log.
        log: LogTail,
    },
    /// A part was not ready in time.
    #[error("{what} within {} s; {log}", PATIENCE.as_secs())]
    TooLate {
        /// The missing event.
        what: String,
        /// The end of the log that may explain it.
        log: LogTail,
    },
    /// The running cluster has another version of Kubernetes.
    #[error(
        "the cluster that runs is Kubernetes {found}, not {}: end it first (make down)", asked_for.minor()
    )]
    OtherKubernetes {
        /// The version of its API server.
        found: String,
        /// The requested version.
        asked_for: Kubernetes,
    },
    /// `down` could not remove everything.
    #[error("this is left of the cluster: {}", left.join(", "))]
    Left {
        /// The remaining parts.
        left: Vec<String>,
    },
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Its folders.
    pub settings: Settings,
    /// Its programs.
    pub tools: Tools,
    _lock: Lock,
}

impl Cluster {
    /// Locks the run folder, and starts the cluster or uses the running one. The remains of a
    /// killed start are removed first.
    pub async fn up(settings: &Settings, progress: &Progress) -> Result<Self, ClusterError> {
        let lock = Lock::try_take(&lock_path(settings))?;
        progress.stage("get the cluster's tools and images");
        let tools = Tools::of_cluster(settings, progress)?;
        let images = images::system(settings, &tools, progress)?;
        let cluster = Self {
            settings: settings.clone(),
            tools,
            _lock: lock,
        };
        progress.stage("start the cluster");
        if cluster.is_whole() {
            check_version(settings, &cluster.client().await?).await?;
            cluster.link_tools()?;
            progress.step("found the cluster running").done();
        } else {
            down::remove_all(settings, progress)?;
            post_mortem::after(settings, cluster.start(&images, progress)).await?;
        }
        Ok(cluster)
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<Client, ClusterError> {
        Ok(crate::kubeconfig::client(&self.kubeconfig()).await?)
    }

    /// Path of a kubeconfig with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig(&self.settings.run, "admin")
    }

    /// Puts the programs of the cluster into the folder for a user's PATH.
    fn link_tools(&self) -> Result<(), FileError> {
        let bin = bin(&self.settings.run);
        remove(&bin)?;
        make_dir(&bin)?;
        for (name, path) in self.tools.programs() {
            let link = bin.join(name);
            symlink(path, &link).at("make the link", &link)?;
        }
        Ok(())
    }

    /// Imports images on all nodes. Images that a node already has cost nothing.
    pub fn import(&self, images: &[Image]) -> Result<(), ClusterError> {
        import(&self.settings.run, &self.tools, images)
    }

    /// Whether every part of a complete start still runs.
    fn is_whole(&self) -> bool {
        let daemons = Daemons::of(&self.settings.run);
        complete_mark(&self.settings).exists()
            && control::NAMES
                .iter()
                .all(|name| daemons.alive(name).is_some())
            && NODES.iter().all(|node| daemons.alive(node.name).is_some())
    }

    async fn start(&self, images: &[Image], progress: &Progress) -> Result<(), ClusterError> {
        let settings = &self.settings;
        let version = settings.kubernetes.minor();
        for part in ["logs", "processes"] {
            make_dir(&settings.run.join(part))?;
        }
        self.link_tools()?;
        network::check()?;
        let ip = Ip::of(self.tools.debian());
        ip.record(&settings.run)?;
        progress.run("made the network", || {
            network::make_bridge(&ip).map_err(NetworkError::from)
        })?;
        let control = control::Control::new(settings, &self.tools);
        progress.run("made certificates, started etcd and the API server", || {
            control.start()
        })?;
        progress
            .wait("started the nodes", async {
                for node in NODES {
                    workers::start(node, settings, &self.tools, &ip).await?;
                }
                network::add_routes(&ip).map_err(NetworkError::from)?;
                Ok::<_, ClusterError>(())
            })
            .await?;
        let client = progress
            .wait(
                format!("the API server of Kubernetes {version} is ready"),
                control.ready(),
            )
            .await?;
        check_version(settings, &client).await?;
        control.start_controllers()?;
        progress
            .wait("brought the cluster's images to the nodes", async {
                workers::wait_for_containerd(settings).await?;
                self.import(images)
            })
            .await?;
        progress
            .wait("both nodes are Ready", workers::ready(settings, &client))
            .await?;
        progress
            .wait("the cluster's DNS answers", self.dns(&client))
            .await?;
        Ok(crate::files::write(&complete_mark(settings), "")?)
    }

    async fn dns(&self, client: &Client) -> Result<(), ClusterError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let daemons = Daemons::of(&self.settings.run);
        let what = "the default service account was not made";
        wait_until(what, &daemons, control::CONTROLLER_MANAGER, async || {
            accounts.get("default").await.is_ok()
        })
        .await?;
        coredns::apply(client).await?;
        let what = "CoreDNS was not available";
        wait_until(what, &daemons, NODES[0].name, async || {
            coredns::is_available(client).await
        })
        .await
    }
}

/// Neither a user nor a test may use a cluster of another version by mistake.
async fn check_version(settings: &Settings, client: &Client) -> Result<(), ClusterError> {
    let failed = |source| ClusterError::Api {
        action: "ask the API server for its version",
        source: Box::new(source),
    };
    let found = client.apiserver_version().await.map_err(failed)?;
    let asked_for = settings.kubernetes;
    if asked_for.is(&found.git_version) {
        return Ok(());
    }
    Err(ClusterError::OtherKubernetes {
        found: found.git_version,
        asked_for,
    })
}

/// Waits until `answers`, while the daemon `name` runs. Its log explains a failure.
async fn wait_until(
    what: &str,
    daemons: &Daemons,
    name: &str,
    answers: impl AsyncFnMut() -> bool,
) -> Result<(), ClusterError> {
    let check = || check_alive(daemons, name);
    until_or_ended(what, PATIENCE, check, answers)
        .await
        .unwrap_or_else(|late| {
            Err(ClusterError::TooLate {
                what: late.what,
                log: LogTail::read(&daemons.log(name), 15),
            })
        })
}

fn check_alive(daemons: &Daemons, name: &str) -> Result<(), ClusterError> {
    if daemons.alive(name).is_some() {
        return Ok(());
    }
    Err(ClusterError::Ended {
        name: name.to_owned(),
        log: LogTail::read(&daemons.log(name), 15),
    })
}

fn is_ready(node: &NodeObject) -> bool {
    let conditions = node.status.iter().flat_map(|status| &status.conditions);
    conditions
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The lock of the process that starts or stops the cluster. It is beside the run folder's content,
/// which `down` removes.
fn lock_path(settings: &Settings) -> PathBuf {
    settings.run.join("lock")
}

/// The file that marks a complete start.
fn complete_mark(settings: &Settings) -> PathBuf {
    settings.run.join("complete")
}
