//! Other work on the machine: allows more of it, and waits until none is left, for trials that
//! compare delays.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::time::Duration;

use cluster::interrupt;
use cluster::wait::{Seen, until};
use libtest_mimic::Failed;

use crate::lab::Lab;

/// The variable that names a file, which exists once the other work has ended. Without it, there is
/// no other work.
const AFTER: &str = "IPU_OPERATOR_QUIET_AFTER";

/// Longer than any work beside the trials takes.
const PATIENCE: Duration = Duration::from_mins(90);

/// The variable that names a file. It is written once the trials that remain tolerate more work
/// beside them.
const TOLERANT: &str = "IPU_OPERATOR_TOLERANT_FROM";

/// Writes the file that allows more work beside the trials, if the environment names one.
pub(crate) fn allow_load() -> Result<(), Failed> {
    let Some(path) = std::env::var_os(TOLERANT) else {
        return Ok(());
    };
    let written = fs::write(&path, "");
    written.map_err(|error| format!("failed to write {}: {error}", path.display()).into())
}

/// Waits for the file.
pub(crate) fn wait(lab: &Lab) -> Result<(), Failed> {
    let Some(path) = std::env::var_os(AFTER) else {
        return Ok(());
    };
    let path = Path::new(&path);
    let what = format!("{} to exist, because no other work is left", path.display());
    let exists = until(what.clone(), PATIENCE, async || {
        Ok::<_, Infallible>(Seen::when(path.exists(), |exists| *exists))
    });
    let waited = lab
        .progress
        .wait(what, async { Ok(exists.await.map(drop)?) });
    let waited = lab.runtime.block_on(interrupt::unless(waited));
    waited.unwrap_or_else(|| Err("it was interrupted".into()))
}
