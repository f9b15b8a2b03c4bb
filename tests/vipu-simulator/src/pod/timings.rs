//! Pure: how long the simulated server's work takes.

use serde::{Deserialize, Serialize};

/// Durations of the server's work, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timings {
    /// From CreatePartition to ACTIVE.
    pub forming_ms: u64,
    /// From RemovePartition to gone.
    pub removing_ms: u64,
    /// From ResetPartition to ACTIVE.
    pub resetting_ms: u64,
}

impl Default for Timings {
    fn default() -> Self {
        Timings {
            forming_ms: 1000,
            removing_ms: 300,
            resetting_ms: 500,
        }
    }
}
