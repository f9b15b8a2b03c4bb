//! Debian's Prometheus and promtool, pinned by `tests/tools/prometheus.lock` and kept in the cache
//! folder.

use std::path::PathBuf;

use cluster::debian::{DebianError, Pinned};
use cluster::files::{FileError, read, sha256_of};
use cluster::settings::{SettingsError, cache, checkout};
use cluster::tools::stored;
use parking_lot::Mutex;

/// Failure to provide Prometheus.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// The package could not be fetched.
    #[error("failed to fetch Debian's prometheus")]
    Debian(#[from] DebianError),
    /// The folder for caches is unknown.
    #[error(transparent)]
    Cache(#[from] SettingsError),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The path of `prometheus` or `promtool`, which is fetched if it is missing.
pub fn program(name: &str) -> Result<PathBuf, PrometheusError> {
    // Two tests that download at the same time would write to the same folder.
    static FETCHING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = FETCHING.lock();
    let lock = read(&checkout().join("tests/tools/prometheus.lock"))?;
    let inputs = sha256_of(&lock);
    let dir = cache()?.join(format!("prometheus-{}", &inputs[..12]));
    if !stored::is_intact(&dir, &inputs) {
        let pinned = Pinned::parse("tests/tools/prometheus.lock", "bookworm", &lock)?;
        stored::make(&dir, &inputs, |folder| {
            pinned.unpack(&dir.with_extension("apt"), folder)
        })?;
    }
    Ok(dir.join("usr/bin").join(name))
}
