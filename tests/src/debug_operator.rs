//! Builds the operator's program and the plugin of kubectl as the suites do, for tests that run
//! them as separate processes.

use std::env;
use std::path::PathBuf;

use cluster::command::{self, CommandError};
use cluster::platform::AMD64;
use parking_lot::Mutex;
use release::cargo::{self, cargo};
use release::dist::PROGRAMS;
use release::guests::checkout;

/// Failure to provide a program.
#[derive(Debug, thiserror::Error)]
pub enum DebugOperatorError {
    /// It could not be built.
    #[error("failed to build the operator")]
    Build(#[from] CommandError),
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
    static BUILT: Mutex<bool> = Mutex::new(false);
    // `make test` builds the programs with the suites.
    if let Some(folder) = env::var_os(PROGRAMS) {
        return Ok(PathBuf::from(folder).join(program));
    }
    let mut is_built = BUILT.lock();
    if !*is_built {
        build()?;
        *is_built = true;
    }
    let built = cargo::target_dir().join(AMD64.target).join("debug");
    Ok(built.join(program))
}

/// Programs are built for a package's tests, so they have the features of all suites. Most callers
/// are suites of this package, for which no dependency is compiled again.
fn build() -> Result<(), CommandError> {
    let mut build = cargo();
    build
        .args(["test", "--locked", "--quiet", "--workspace", "--no-run"])
        .args(["--test", "policy_cli", "--test", "command_line"])
        .args(["--test", "apiserver", "--target", AMD64.target])
        .current_dir(checkout());
    // Only the tests of wrong clocks set other flags, because a static program loads no library
    // that changes its clock.
    if env::var_os(cargo::FLAGS).is_none() {
        build.env(cargo::FLAGS, cargo::STATIC);
    }
    command::run(&mut build)
}
