//! Loads a real API server with jobs of one launcher and two workers, or only with partitions.
//! Measures the speed of the operators and proxies, their writes, and their memory and CPU.

mod accounts;
mod bare;
mod consumption;
mod fake_node;
mod job_controller;
mod large_job;
mod many_jobs;
mod mpi_operator;
mod partitions;
mod product;
mod race;
mod running_jobs;
mod submit;
mod vipu_controllers;

use std::collections::BTreeMap;
use std::time::Duration;

pub use bare::bare_loop;
pub use consumption::Consumption;
pub use large_job::{LargeJob, large_jobs};
pub use many_jobs::{ManyJobs, many_jobs};
pub use mpi_operator::{LauncherCreation, mpi_operator};
pub(crate) use mpi_operator::{define_mpi_job, start_mpi_operator};
pub use partitions::{
    Backlog, Decided, Many, Period, Recorded, Size, Waiting, backlog, bare_partitions, decisions,
    many_partitions, queries, record_partitions, waiting,
};
pub use product::{LauncherRights, Sizes, ipu_operator, sizes};
pub use race::{Contender, Race, RaceOptions, Ratios, race};
pub(crate) use submit::{jobs, once_served};

use cluster::command::CommandError;
use cluster::control_plane::{ControlPlane, ControlPlaneError, ControlPlaneOptions};
use cluster::files::FileError;
use cluster::http::HttpError;
use cluster::kubeconfig::ClientError;
use cluster::log_tail::LogTail;
use cluster::settings::SettingsError;
use cluster::tools::ToolsError;
use cluster::wait::WaitedTooLong;

/// Longest time until all Pods of a load exist.
const PATIENCE: Duration = Duration::from_mins(30);

/// Namespace of the jobs.
const NAMESPACE: &str = "default";

/// Jobs that are submitted at the same time.
const SUBMITTED_AT_ONCE: usize = 16;

/// Failure to measure a load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The folders are unknown.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A program could not be built.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// There is no API server.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// There is no client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The API server refused a request.
    #[error("failed to {action}")]
    Api {
        /// The requested action.
        action: &'static str,
        /// The error.
        #[source]
        source: Box<kube::Error>,
    },
    /// The counts of requests could not be read.
    #[error("failed to read the API server's counts of requests")]
    Writes(#[from] Box<kube::Error>),
    /// A command failed.
    #[error("failed to {action}")]
    Command {
        /// The action that failed.
        action: &'static str,
        /// The error.
        #[source]
        source: CommandError,
    },
    /// A process could not be started.
    #[error("failed to start {0}")]
    Start(&'static str, #[source] std::io::Error),
    /// A program ended before it became ready.
    #[error("{name} ended while it started; {log}")]
    Ended {
        /// Name of the program.
        name: &'static str,
        /// The end of its log.
        log: LogTail,
    },
    /// A V-IPU controller could not be simulated.
    #[error("failed to simulate a V-IPU controller")]
    Simulator(#[from] vipu_simulator::StartError),
    /// A V-IPU controller could not be called.
    #[error("failed to call a V-IPU controller")]
    Vipu(#[from] vipu_client::VipuError),
    /// The placement guest could not be loaded.
    #[error("failed to load the placement guest; `make dist` builds it")]
    Guest(#[from] ipu_guest_host::OpenError),
    /// A probe did not answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The Pods were not created in time.
    #[error(transparent)]
    Waited(#[from] WaitedTooLong),
    /// Something is missing.
    #[error("{0}")]
    Missing(String),
}

/// The measurements of one load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The number of submitted jobs or partitions.
    pub count: usize,
    /// From the first submission until the status of each job said that it ran, or all partitions
    /// were ready. Writes and CPU time are those of the same window.
    pub took: Duration,
    /// Writes to the API server by all clients except the user and the kubelet, by method and
    /// resource.
    pub writes: BTreeMap<String, u64>,
    /// CPU time of kube-apiserver for all of them.
    pub api_server: Duration,
}

impl Load {
    /// CPU time of kube-apiserver for each, in milliseconds.
    pub fn api_server_ms(&self) -> f64 {
        self.api_server.as_secs_f64() * 1000.0 / as_figure(self.count as u64)
    }

    /// The number per second.
    pub fn rate(&self) -> f64 {
        self.took.as_secs_f64().recip() * as_figure(self.count as u64)
    }

    /// The number of writes for each.
    pub fn writes_of_each(&self) -> f64 {
        self.of_each(self.writes.values().sum())
    }

    /// Returns a count divided by the number of them.
    pub fn of_each(&self, total: u64) -> f64 {
        as_figure(total) / as_figure(self.count as u64)
    }
}

/// Returns a count as a floating-point number.
#[expect(
    clippy::cast_precision_loss,
    reason = "the counts of a benchmark are far below 2^52"
)]
fn as_figure(count: u64) -> f64 {
    count as f64
}

/// Starts an API server for one run of a contender.
async fn plane(fsync: bool) -> Result<ControlPlane, LoadError> {
    let options = ControlPlaneOptions {
        fsync,
        ..ControlPlaneOptions::default()
    };
    Ok(ControlPlane::start_with(&options).await?)
}

fn api(action: &'static str) -> impl FnOnce(kube::Error) -> LoadError {
    move |source| LoadError::Api {
        action,
        source: Box::new(source),
    }
}
