//! The operator's program as the suites build it, for tests that run it as a process of its own.

use std::env;
use std::io;
use std::path::PathBuf;

use cluster::command::{self, CommandError};
use parking_lot::Mutex;
use release::cargo::cargo;
use release::guests::checkout;

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub enum DebugOperatorError {
    /// It could not be built.
    #[error("failed to build the operator")]
    Build(#[from] CommandError),
    /// The folder of what is built is not known.
    #[error("failed to find the folder of the running tests")]
    Folder(#[source] io::Error),
}

/// Path of the program; built where it is older than its sources.
pub fn program() -> Result<PathBuf, DebugOperatorError> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock();
    let mut build = cargo();
    // Programs are built for a package's tests. So it has the features of all suites. With a suite of this package,
    // which most callers are, nothing that it depends on is compiled again.
    build
        .args(["test", "--locked", "--quiet", "--workspace", "--no-run"])
        .args(["--test", "policy_cli", "--test", "apiserver"])
        .current_dir(checkout());
    command::run(&mut build)?;
    // `target/debug/deps/apiserver-…`
    let tests = env::current_exe().map_err(DebugOperatorError::Folder)?;
    let built = tests.parent().and_then(|deps| deps.parent());
    let missing = || DebugOperatorError::Folder(io::ErrorKind::NotFound.into());
    Ok(built.ok_or_else(missing)?.join("ipu-operator"))
}
