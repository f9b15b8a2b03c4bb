//! Measures placement for BENCHMARKS.md: policies and settings of the queue with the jobs of a real cluster, and the
//! growth with the scale.

mod growth;
mod policies;
mod scale;
mod settings;

pub use growth::exponent;
pub use policies::{PolicyError, Run, evaluate};
pub use scale::{Measured, scale};
pub use settings::{RealJobs, Replayed, SettingsError};

/// The jobs of a real cluster, in the checkout.
const JOBS: &str = "tests/evaluation/msr-jobs.csv";

/// The number of IPUs from which a job counts as large: one in fifty jobs is.
const LARGE: u64 = 16;
