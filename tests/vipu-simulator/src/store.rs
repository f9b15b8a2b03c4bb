//! Stores the simulated pod in a file, so that its partitions outlive the simulator's process.

use std::fs;
use std::io;
use std::path::Path;

use crate::pod::Pod;

/// Reads a stored pod. `None`: there is no file yet.
pub(super) fn load(file: &Path) -> io::Result<Option<Pod>> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores a pod in one step: a reader finds the old file or the new one.
pub(super) fn save(file: &Path, pod: &Pod) -> io::Result<()> {
    let fresh = file.with_extension("new");
    fs::write(&fresh, serde_json::to_vec(pod)?)?;
    fs::rename(fresh, file)
}
