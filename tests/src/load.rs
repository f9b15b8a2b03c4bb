//! Loads a real API server with jobs of one launcher and two workers, or with partitions alone, and
//! measures what serves them: how fast, with how many writes, and with how much memory and CPU.

mod admission;
mod api_writes;
mod bare;
mod consumption;
mod fake_node;
mod large_job;
mod many_jobs;
mod mpi_operator;
mod partitions;
mod product;
mod status_writes;
mod submit;
mod vipu_controllers;

use std::collections::BTreeMap;
use std::time::Duration;

pub use admission::{Admission, Times, admission};
pub use api_writes::Writes;
pub use bare::bare_loop;
pub use consumption::Consumption;
pub use large_job::{LargeJob, large_jobs};
pub use many_jobs::{ManyJobs, many_jobs};
pub use mpi_operator::mpi_operator;
pub(crate) use mpi_operator::{define_mpi_job, start_mpi_operator};
pub use partitions::{
    Decided, Many, Recorded, bare_partitions, decisions, many_partitions, queries,
    record_partitions,
};
pub use product::{Sizes, ipu_operator, sizes};
pub use status_writes::{StatusWrites, status_writes};
pub(crate) use submit::{jobs, once_served};

use cluster::command::CommandError;
use cluster::control_plane::ControlPlaneError;
use cluster::http::HttpError;
use cluster::kubeconfig::ClientError;
use cluster::log_tail::LogTail;
use cluster::settings::SettingsError;
use cluster::tools::ToolsError;
use cluster::wait::WaitedTooLong;

/// How long all Pods of a load may take to be made.
const PATIENCE: Duration = Duration::from_mins(30);

/// Namespace of the jobs.
const NAMESPACE: &str = "default";

/// Jobs that are submitted at the same time.
const SUBMITTED_AT_ONCE: usize = 16;

/// Why a load could not be measured.
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
    /// The API server refused a request.
    #[error("failed to {action}")]
    Api {
        /// What was asked for.
        action: &'static str,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// A command failed.
    #[error("failed to {action}")]
    Command {
        /// What was tried.
        action: &'static str,
        /// What failed.
        #[source]
        source: CommandError,
    },
    /// A process could not be started.
    #[error("failed to start {0}")]
    Start(&'static str, #[source] std::io::Error),
    /// A program ended while it should have become ready.
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
    /// The Pods did not come.
    #[error(transparent)]
    Waited(#[from] WaitedTooLong),
    /// Something is missing.
    #[error("{0}")]
    Missing(String),
}

/// What one load showed.
#[derive(Clone, Debug)]
pub struct Load {
    /// How many were submitted: jobs, or partitions.
    pub count: usize,
    /// From the first submission until all Pods existed, or all partitions were ready.
    pub took: Duration,
    /// Writes to the API server by all but the user and the kubelet, by what was written.
    pub writes: BTreeMap<String, u64>,
    /// Time on a processor that kube-apiserver took for all of them.
    pub api_server: Duration,
}

impl Load {
    /// Time on a processor that kube-apiserver took for each, in milliseconds.
    pub fn api_server_ms(&self) -> f64 {
        self.api_server.as_secs_f64() * 1000.0 / as_figure(self.count as u64)
    }

    /// How many per second.
    pub fn rate(&self) -> f64 {
        self.took.as_secs_f64().recip() * as_figure(self.count as u64)
    }

    /// A count over all of them, for each.
    pub fn of_each(&self, total: u64) -> f64 {
        as_figure(total) / as_figure(self.count as u64)
    }
}

/// A count, to reckon with.
#[expect(
    clippy::cast_precision_loss,
    reason = "the counts of a benchmark are far below 2^52"
)]
fn as_figure(count: u64) -> f64 {
    count as f64
}

fn api(action: &'static str) -> impl FnOnce(kube::Error) -> LoadError {
    move |source| LoadError::Api {
        action,
        source: Box::new(source),
    }
}
