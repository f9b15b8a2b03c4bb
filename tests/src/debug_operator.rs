//! Builds the operator's program and the plugin of kubectl as the suites do, for tests that run them as separate
//! processes.

use std::env;
use std::io;
use std::path::PathBuf;

use cluster::command::{self, CommandError};
use parking_lot::Mutex;
use release::cargo::cargo;
use release::guests::checkout;

/// Failure to provide a program.
#[derive(Debug, thiserror::Error)]
pub enum DebugOperatorError {
    /// It could not be built.
    #[error("failed to build the operator")]
    Build(#[from] CommandError),
    /// The target folder of cargo is unknown.
    #[error("failed to find the folder of the running tests")]
    Folder(#[source] io::Error),
}

/// Path of the operator's program. Cargo builds it again if its sources are newer.
pub fn program() -> Result<PathBuf, DebugOperatorError> {
    built("ipu-operator")
}

/// Path of the plugin of kubectl. Cargo builds it again if its sources are newer.
pub fn plugin() -> Result<PathBuf, DebugOperatorError> {
    built("kubectl-ipu")
}

fn built(program: &str) -> Result<PathBuf, DebugOperatorError> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock();
    let mut build = cargo();
    // Programs are built for a package's tests, so they have the features of all suites. Most callers are suites of
    // this package, for which no dependency is compiled again.
    build
        .args(["test", "--locked", "--quiet", "--workspace", "--no-run"])
        .args(["--test", "policy_cli", "--test", "command_line"])
        .args(["--test", "apiserver"])
        .current_dir(checkout());
    command::run(&mut build)?;
    // `target/debug/deps/apiserver-…`
    let tests = env::current_exe().map_err(DebugOperatorError::Folder)?;
    let built = tests.parent().and_then(|deps| deps.parent());
    let missing = || DebugOperatorError::Folder(io::ErrorKind::NotFound.into());
    Ok(built.ok_or_else(missing)?.join(program))
}
