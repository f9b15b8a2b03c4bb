//! Further API servers on the etcd of a control plane, which can be restarted one after the other.

use std::net::SocketAddr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{ControlPlane, ControlPlaneError, READY, free_ports, log_path};
use crate::kubeconfig;
use crate::log_tail::LogTail;
use crate::supervisor::{Program, Supervisor};
use crate::wait::{Seen, until, until_or_ended};

/// Limit of a request. A server that ends waits so long for watches.
const TIMEOUT: &str = "--request-timeout=10s";

/// A running kube-apiserver. Its drop ends it.
#[derive(Debug)]
pub struct Member {
    supervisor: Supervisor,
    program: Program,
    kubeconfig: PathBuf,
    port: u16,
}

impl ControlPlane {
    /// Starts another API server with the same etcd and certificates, and waits until it is ready.
    pub async fn member(&self, number: usize) -> Result<Member, ControlPlaneError> {
        let [port] = free_ports().map_err(ControlPlaneError::Port)?;
        let dir = self.scratch.path();
        let mut program = self.programs[1].clone();
        program.log = log_path(dir, &format!("kube-apiserver-{number}"));
        program
            .args
            .retain(|argument| !argument.starts_with("--secure-port="));
        program.args.push(format!("--secure-port={port}"));
        program.args.push(TIMEOUT.to_owned());
        let path = dir.join(format!("admin-{number}.kubeconfig"));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        kubeconfig::write_at(&self.kubeconfig(), &path, &format!("https://{address}"))?;
        let member = Member {
            supervisor: start(&program)?,
            program,
            kubeconfig: path,
            port,
        };
        member.ready().await?;
        Ok(member)
    }
}

impl Member {
    /// The address of its port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Lets it finish its requests and end, as an upgrade does, and starts it again.
    pub async fn restart(&mut self) -> Result<(), ControlPlaneError> {
        if let Some(process) = self.supervisor.process(self.program.name) {
            // It fails only if the process has ended already.
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGTERM);
            let ended = until("kube-apiserver to end", READY, async || {
                Ok::<_, ControlPlaneError>(Seen::when(process.is_alive(), |is_alive| !is_alive))
            });
            ended.await.map_err(|_| self.not_ready())?;
        }
        self.supervisor.end();
        self.supervisor = start(&self.program)?;
        self.ready().await
    }

    async fn ready(&self) -> Result<(), ControlPlaneError> {
        let namespaces: Api<Namespace> = Api::all(kubeconfig::client(&self.kubeconfig).await?);
        let check = || match self.supervisor.first_dead() {
            None => Ok(()),
            Some(name) => Err(ControlPlaneError::Ended {
                name,
                log: self.log(),
            }),
        };
        until_or_ended("kube-apiserver", READY, check, async || {
            namespaces.get("default").await.is_ok()
        })
        .await
        .unwrap_or_else(|_| Err(self.not_ready()))
    }

    fn not_ready(&self) -> ControlPlaneError {
        ControlPlaneError::NotReady { log: self.log() }
    }

    fn log(&self) -> LogTail {
        LogTail::read(&self.program.log, 15)
    }
}

fn start(program: &Program) -> Result<Supervisor, ControlPlaneError> {
    Supervisor::start(vec![program.clone()]).map_err(ControlPlaneError::Start)
}
