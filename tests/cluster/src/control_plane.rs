//! A throwaway etcd and kube-apiserver on loopback, for suites that need a real API server.
//!
//! There is no controller manager: namespaces remain Terminating, owned objects are not collected,
//! and Services have addresses without endpoints. Everything ends when the value is dropped, even
//! if a test panics, and when the process ends, even if it is killed.

use std::{
    io,
    net::TcpListener,
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

pub mod admission;
pub mod contents;
pub mod flags;
mod idle;
pub mod member;
pub mod pool;
mod scratch;
pub mod snapshot;

use self::{
    flags::{ApiServer, Etcd},
    scratch::Scratch,
};
use crate::wait::until_or_ended;
use crate::{
    files::FileError,
    kubeconfig::{self, ClientError},
    log_tail::LogTail,
    pki::{Pki, PkiError},
    process::Process,
    progress::Progress,
    settings::{Settings, SettingsError},
    supervisor::{Program, Supervisor},
    tools::{Tools, ToolsError},
};

/// Ports of tests, below the kernel's ephemeral ports, and below the ports of Services of type
/// NodePort.
const PORTS: Range<u16> = 10_000..30_000;

/// Addresses of Services: loopback, so that no packet of a test leaves the machine.
const SERVICES: &str = "127.77.0.0/24";
/// Longest start of the API server on a busy machine.
const READY: Duration = Duration::from_mins(2);
/// Number of starts, if another process takes one of the chosen ports.
const TRIES: usize = 3;

/// Failure to start the control plane.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// The folders are unknown.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The binaries could not be built.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// The certificates could not be made.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No free port on loopback.
    #[error("failed to find a free port on 127.0.0.1")]
    Port(#[source] io::Error),
    /// A process could not be started.
    #[error("failed to start etcd or kube-apiserver")]
    Start(#[source] io::Error),
    /// A process ended while it should have become ready.
    #[error("{name} ended while it started; {log}")]
    Ended {
        /// Name of the program.
        name: &'static str,
        /// The end of its log.
        log: LogTail,
    },
    /// The API server did not become ready.
    #[error("kube-apiserver was not ready within {} s; {log}", READY.as_secs())]
    NotReady {
        /// The end of its log.
        log: LogTail,
    },
}

/// Options of a control plane.
#[derive(Debug, Default)]
pub struct ControlPlaneOptions {
    /// The most bytes that etcd stores.
    pub etcd_quota: Option<u64>,
    /// The file for `--admission-control-config-file` of kube-apiserver.
    pub admission_config: Option<PathBuf>,
    /// Whether etcd flushes each write to disk.
    pub fsync: bool,
}

/// A running etcd and kube-apiserver.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields drop in this order: the processes end before their folder is removed.
    supervisor: Supervisor,
    scratch: Scratch,
    programs: Vec<Program>,
    server: String,
    flags: Etcd,
}

impl ControlPlane {
    /// Starts both on free ports and waits until they are ready (about 3 s).
    pub async fn start() -> Result<Self, ControlPlaneError> {
        Self::start_with(&ControlPlaneOptions::default()).await
    }

    /// Starts both with these options.
    pub async fn start_with(options: &ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        let settings = Settings::from_env()?;
        let names = ["etcd", "kubernetes"];
        let tools = Tools::fetch_some(&settings, &Progress::start(), &names)?;
        let mut tries = 1;
        loop {
            match Self::start_once(&tools, options).await {
                Err(ControlPlaneError::Ended { .. }) if tries < TRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Returns a client with all rights. Each test makes its own, because a client belongs to a
    /// runtime.
    pub async fn client(&self) -> Result<Client, ClientError> {
        kubeconfig::client(&self.kubeconfig()).await
    }

    /// Path of a kubeconfig with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.scratch.path().join("admin.kubeconfig")
    }

    /// URL of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The process of kube-apiserver, while it runs.
    pub fn api_server(&self) -> Option<Process> {
        self.supervisor.process("kube-apiserver")
    }

    /// URL of etcd.
    pub fn etcd(&self) -> String {
        self.flags.client()
    }

    async fn start_once(
        tools: &Tools,
        options: &ControlPlaneOptions,
    ) -> Result<Self, ControlPlaneError> {
        let scratch = Scratch::make()?;
        let dir = scratch.path();
        let [etcd_port, peer_port, port] = free_ports().map_err(ControlPlaneError::Port)?;
        let pki = Pki::make(&dir.join("pki"))?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
        pki.server("apiserver", "kube-apiserver", None, &names)?;
        let admin = pki.client("admin", Some("system:masters"))?;
        let server = format!("https://127.0.0.1:{port}");
        let path = dir.join("admin.kubeconfig");
        kubeconfig::write(&path, &server, &dir.join("pki"), &admin)?;
        let etcd = Etcd {
            data: dir.join("etcd"),
            client_port: etcd_port,
            peer_port,
            quota: options.etcd_quota,
            fsync: options.fsync,
        };
        let api_server = ApiServer {
            pki: dir.join("pki"),
            etcd_port,
            bind: "127.0.0.1",
            advertise: "127.0.0.1",
            port,
            services: SERVICES,
            whole_cluster: false,
            admission_config: options.admission_config.clone(),
        };
        let programs = vec![
            program(tools, dir, "etcd", etcd.args()),
            program(tools, dir, "kube-apiserver", api_server.args()),
        ];
        let supervisor = Supervisor::start(programs.clone()).map_err(ControlPlaneError::Start)?;
        let control_plane = Self {
            supervisor,
            scratch,
            programs,
            server,
            flags: etcd,
        };
        control_plane.ready().await?;
        Ok(control_plane)
    }

    /// Waits until the API server answers and has created its own namespaces.
    async fn ready(&self) -> Result<(), ControlPlaneError> {
        let namespaces: Api<Namespace> = Api::all(self.client().await?);
        let check = || match self.supervisor.first_dead() {
            None => Ok(()),
            Some(name) => Err(ControlPlaneError::Ended {
                name,
                log: self.log(name),
            }),
        };
        until_or_ended("kube-apiserver", READY, check, async || {
            namespaces.get("default").await.is_ok()
        })
        .await
        .unwrap_or_else(|_| {
            Err(ControlPlaneError::NotReady {
                log: self.log("kube-apiserver"),
            })
        })
    }

    fn log(&self, name: &str) -> LogTail {
        LogTail::read(&log_path(self.scratch.path(), name), 15)
    }
}

fn program(tools: &Tools, dir: &Path, name: &'static str, args: Vec<String>) -> Program {
    Program {
        name,
        path: tools.program(name).to_owned(),
        args,
        env: Vec::new(),
        log: log_path(dir, name),
    }
}

fn log_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.log"))
}

/// Ports on loopback on which no process listens. Another process may take one before it is used.
/// In that case the start is repeated.
pub fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free_port()?;
    }
    Ok(ports)
}

/// A port that no other call of this process returns. It is not an ephemeral port: between the
/// choice and its use, the kernel could assign such a port to a connection.
fn free_port() -> io::Result<u16> {
    static CHOSEN: AtomicU32 = AtomicU32::new(0);
    let width = u32::from(PORTS.end - PORTS.start);
    // Another process begins elsewhere.
    let first = std::process::id().wrapping_mul(7_919);
    let mut taken = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..width {
        let chosen = first.wrapping_add(CHOSEN.fetch_add(1, Ordering::Relaxed)) % width;
        let port = PORTS.start + u16::try_from(chosen).unwrap_or_default();
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) => taken = error,
        }
    }
    Err(taken)
}
