//! Measures the policies of one process: swaps under load, a guest that uses its whole deadline,
//! memory, fuel, and the time to compile.

mod memory;
mod neighbours;
mod spending;
mod swaps;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipu_admission::request::AdmissionRequest;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::context::{Admission, Operation};
use ipu_guest_host::{
    GuestHost, GuestHostOptions, InspectError, Limits, LoadError, ModuleConfig, OpenError,
};
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::bound_policy::BoundPolicy;
use serde_json::json;

use cluster::files::FileError;
pub use memory::{Memory, memory};
pub use neighbours::{Neighbours, neighbours};
use release::guests::BuildError;
pub use spending::{Compiled, Fuel, compiled, fuel};
pub use swaps::{Swaps, swaps};

use crate::languages::LanguageError;
use crate::review;

/// Failure of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum PolicyLoadError {
    /// A guest cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A guest of another language cannot be built.
    #[error(transparent)]
    Language(#[from] LanguageError),
    /// The built-in guests could not be loaded.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A guest is refused.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A guest could not be inspected.
    #[error("failed to try {file}")]
    Try {
        /// The file.
        file: PathBuf,
        /// The error.
        #[source]
        source: InspectError,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A result is wrong.
    #[error("{0}")]
    Wrong(String),
}

/// Opens the built-in guests of admission, as in an operator, with this deadline.
async fn open(deadline: Duration) -> Result<(ActivePolicies, PathBuf), PolicyLoadError> {
    let built = tokio::task::spawn_blocking(release::guests::build).await;
    let folder = built.map_err(|error| PolicyLoadError::Wrong(error.to_string()))??;
    let options = GuestHostOptions {
        guests_dir: folder.clone(),
        hooks: vec![Hook::Defaulting, Hook::Validation],
        limits: Limits {
            deadline,
            ..Limits::default()
        },
        ..GuestHostOptions::default()
    };
    Ok((ActivePolicies::new(GuestHost::open(options).await?), folder))
}

/// Returns a guest as an IPUPolicy activates it.
async fn prepared(
    guests: &ActivePolicies,
    hook: Hook,
    name: &str,
    bytes: Vec<u8>,
) -> Result<BoundPolicy, PolicyLoadError> {
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        ..ModuleConfig::default()
    };
    let guest = guests.host().prepare(hook, bytes, config).await?;
    Ok(BoundPolicy {
        name: name.into(),
        guest,
        ..BoundPolicy::built_in(hook)
    })
}

/// Returns the same module with another digest, from an additional custom section.
fn version(bytes: &[u8], number: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.extend([0, 2, 1, number]);
    bytes
}

fn read(folder: &Path, file: &str) -> Result<Vec<u8>, PolicyLoadError> {
    let path = folder.join(file);
    std::fs::read(&path).map_err(|source| {
        PolicyLoadError::Wrong(format!("failed to read {}: {source}", path.display()))
    })
}

fn creating() -> Admission {
    Admission::of(Operation::Create)
}

/// The request of the API server for a job as users write it, with a note of this number of bytes.
fn request(note: usize) -> Result<Arc<AdmissionRequest>, PolicyLoadError> {
    let spec = json!({
        "jobInstances": 1,
        "ipusPerJobInstance": "8",
        "workersPerJobInstance": "2",
        "launcher": {"command": ["mpirun", "python3", "train.py"]},
        "workers": {"template": {"spec": {
            "containers": [{"name": "worker", "image": "mnist:1"}],
        }}},
    });
    let parsed = review::creating("mnist", note, &spec);
    let parsed = parsed.map_err(|error| PolicyLoadError::Wrong(error.to_string()))?;
    Ok(Arc::new(parsed))
}

/// The time that this percentage of the times does not exceed.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    ipu_authoring::percentile(times, percent)
}
