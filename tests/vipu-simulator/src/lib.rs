//! A simulated V-IPU controller: the user API on a real port, and a second port that orders faults.
//!
//! Entry points:
//! - [`Simulator::start`] runs one within the process of a test, which orders faults through
//!   [`Simulator::server`]. The program `vipu-simulator` runs one alone, and takes orders by HTTP
//!   (`control`).
//! - [`pod`] is the V-IPU pod with its partitions, and [`allocation`] chooses the IPUs of a
//!   partition; both are pure.
//! - [`faults`] has every fault, `lies` those of a reply's content, and [`codes`] the gRPC codes of
//!   refusals.
//! - [`Simulator::export`] serves the metrics of each IPU-Machine (`exporter`).
//! - `service` serves the user API, `listener` accepts its connections, and [`journal`] records its
//!   calls.
//!
//! It must not know the operator or Kubernetes. Of the V-IPU client it uses the protocol buffers,
//! and of the API the entry of a list of controllers.
#![forbid(unsafe_code)]

pub mod allocation;
pub mod codes;
mod control;
pub mod endless;
mod exporter;
pub mod faults;
pub mod journal;
mod lies;
mod listener;
pub mod pod;
mod server;
mod service;
mod store;
pub mod tls;
pub mod users;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use ipu_api::ipupartition::ControllerRef;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use pod::{Pod, Timings};
pub use server::{Server, World};
use tls::{TlsError, TlsFiles};

/// The settings of a simulator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the pod.
    pub name: String,
    /// IPUs of the pod.
    pub ipus: u32,
    /// Names of its clusters, which have equal shares of the IPUs. Empty: one cluster with the
    /// pod's name.
    pub clusters: Vec<String>,
    /// Address of the user API. Port 0: any free one.
    pub listen: SocketAddr,
    /// Address of the control port. Port 0: any free one.
    pub control: SocketAddr,
    /// Durations of its work.
    pub timings: Timings,
    /// File in which the partitions are kept.
    pub file: Option<PathBuf>,
    /// The TLS settings of the user API. Missing: plain text.
    pub tls: Option<TlsFiles>,
    /// The required gRPC metadata, by name. Calls without it are refused.
    pub required: BTreeMap<String, String>,
}

impl Options {
    /// Returns a pod for a test: on free ports of this machine's loopback, with work that takes a
    /// moment.
    pub fn quick(name: &str, ipus: u32) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Options {
            name: name.to_owned(),
            ipus,
            clusters: Vec::new(),
            listen: any,
            control: any,
            timings: Timings {
                forming_ms: 20,
                removing_ms: 10,
                resetting_ms: 10,
            },
            file: None,
            tls: None,
            required: BTreeMap::new(),
        }
    }
}

/// Failure to start a simulator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// TLS cannot be prepared.
    #[error("failed to prepare TLS")]
    Tls(#[from] TlsError),
    /// A port is not available.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The kept partitions cannot be read.
    #[error("failed to read the partitions kept in {}", file.display())]
    Load {
        /// The file.
        file: PathBuf,
        /// The error of the file.
        #[source]
        source: std::io::Error,
    },
    /// The kept partitions belong to another pod.
    #[error("failed to take over {}: it holds pod {name:?} of {ipus} IPUs", file.display())]
    OtherPod {
        /// The file.
        file: PathBuf,
        /// The name of that pod.
        name: String,
        /// The number of its IPUs.
        ipus: u32,
    },
}

/// A running simulator. It ends when it is dropped.
#[derive(Debug)]
pub struct Simulator {
    /// Its state: orders, calls, partitions.
    pub server: Arc<Server>,
    /// Address of the user API.
    pub address: SocketAddr,
    /// Address of the control port.
    pub control: SocketAddr,
    stop: CancellationToken,
    _stopping: DropGuard,
}

/// The exporter of an IPU-Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exporter {
    /// Address of the IPU-Machine in IPUoF configurations.
    pub machine: String,
    /// Address at which it serves `/metrics`.
    pub address: SocketAddr,
}

impl Simulator {
    /// Starts a simulator. When this returns, it listens.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let pod = match &options.file {
            Some(file) => load(file.clone(), &options)?,
            None => None,
        };
        let pod = pod.unwrap_or_else(|| Pod::new(&options.name, options.ipus, options.timings));
        let pod = match options.clusters.as_slice() {
            [] => pod,
            names => pod.with_clusters(names),
        };
        let server = Arc::new(Server::new(pod, options.file, options.required));
        let tls = options.tls.as_ref().map(tls::acceptor).transpose()?;
        let (listener, address) = listen(options.listen).await?;
        let (control_listener, control) = listen(options.control).await?;
        let stop = CancellationToken::new();
        tokio::spawn(listener::serve(listener, server.clone(), tls, stop.clone()));
        serve(control_listener, control::router(server.clone()), &stop);
        Ok(Simulator {
            server,
            address,
            control,
            _stopping: stop.clone().drop_guard(),
            stop,
        })
    }

    /// Starts the exporter of each IPU-Machine, which ends with the simulator. The first one
    /// listens on `first`, and the others on the ports after it. Port 0: each on any free one.
    pub async fn export(&self, first: SocketAddr) -> Result<Vec<Exporter>, StartError> {
        let machines = self.server.with(|world, _| exporter::machines(&world.pod));
        let mut exporters = Vec::new();
        for machine in 0..machines {
            let port = match first.port() {
                0 => 0,
                port => port.saturating_add(u16::try_from(machine).unwrap_or(u16::MAX)),
            };
            let (listener, address) = listen(SocketAddr::new(first.ip(), port)).await?;
            let routes = exporter::router(self.server.clone(), machine);
            serve(listener, routes, &self.stop);
            let machine = wire::address(machine);
            exporters.push(Exporter { machine, address });
        }
        Ok(exporters)
    }

    /// Returns this controller as an entry of `controllers.yaml`, with the label `ipunode=<label>`.
    pub fn controller(&self, label: &str) -> ControllerRef {
        ControllerRef {
            name: self.address.to_string(),
            host: self.address.ip().to_string(),
            port: self.address.port(),
            label_key: "ipunode".to_owned(),
            label_value: label.to_owned(),
        }
    }
}

/// Serves HTTP until `stop`.
fn serve(listener: TcpListener, routes: Router, stop: &CancellationToken) {
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stopped.cancelled() => {}
            result = axum::serve(listener, routes) => {
                if let Err(error) = result {
                    tracing::error!(%error, "a port ended");
                }
            }
        }
    });
}

fn load(file: PathBuf, options: &Options) -> Result<Option<Pod>, StartError> {
    let kept = match store::load(&file) {
        Ok(kept) => kept,
        Err(source) => return Err(StartError::Load { file, source }),
    };
    let Some(mut pod) = kept else {
        return Ok(None);
    };
    if pod.name != options.name || pod.ipus != options.ipus {
        return Err(StartError::OtherPod {
            file,
            name: pod.name,
            ipus: pod.ipus,
        });
    }
    pod.timings = options.timings;
    Ok(Some(pod))
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let refused = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}
