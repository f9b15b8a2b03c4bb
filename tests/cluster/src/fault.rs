//! Faults of the cluster itself: a connection that is interrupted without a close, and a control
//! plane that does not answer.

use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{self, CommandError};
use crate::plan::API_SERVICE_IP;
use crate::process::Daemons;
use crate::tools::Tools;

/// Failure to make a fault.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The route could not be set.
    #[error("failed to cut the way to the API server")]
    Cut(#[source] CommandError),
    /// There is no such process.
    #[error("{0} does not run")]
    NotRunning(String),
    /// The signal could not be sent.
    #[error("failed to stop process {pid}")]
    Stop {
        /// The process.
        pid: i32,
        /// The cause.
        #[source]
        source: Errno,
    },
}

/// Drops all packets from a Pod to the API server, without a report to either side. `pid` is a
/// process of the Pod. The fault ends with the Pod.
pub fn cut_from_the_api_server(pid: i32, tools: &Tools) -> Result<(), FaultError> {
    let debian = tools.debian();
    let network = format!("--net=/proc/{pid}/ns/net");
    let mut enter = Command::new("nsenter");
    enter.args([&network, "--"]).arg(debian.path("bin/ip"));
    enter.args(["route", "add", "blackhole", API_SERVICE_IP]);
    command::run(enter.envs(debian.env())).map_err(FaultError::Cut)
}

/// A process of the cluster that is stopped until this is dropped. Its callers wait.
#[derive(Debug)]
pub struct Stopped(Pid);

impl Stopped {
    /// The daemon of this name in a run folder.
    pub fn daemon(run: &Path, name: &str) -> Result<Self, FaultError> {
        let process = Daemons::of(run).alive(name);
        let process = process.ok_or_else(|| FaultError::NotRunning(name.to_owned()))?;
        Self::process(process.pid)
    }

    /// A process.
    pub fn process(pid: i32) -> Result<Self, FaultError> {
        let stopped = Pid::from_raw(pid);
        kill(stopped, Signal::SIGSTOP).map_err(|source| FaultError::Stop { pid, source })?;
        Ok(Self(stopped))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // A process that ended together with the cluster needs nothing more.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}
