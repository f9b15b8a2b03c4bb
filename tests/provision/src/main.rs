//! Builds what a command of the Makefile needs, side by side and with a bar, and then becomes that
//! command.

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use provision::builds::{self, BuildsError};
use provision::interrupt::{self, First};
use provision::programs::PROGRAMS;
use provision::progress::EARLIER_STAGES;
use provision::settings::{Settings, SettingsError};
use provision::testing::{self, TestingError};
use provision::{cargo, platform::AMD64};

/// Failure of a command.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// There is no command.
    #[error("provision needs a command: `test`, or one of the harness; `make` lists them")]
    NoCommand,
    /// The signals of the terminal cannot be received.
    #[error("failed to watch for Ctrl-C")]
    Watch(#[source] io::Error),
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Something could not be built.
    #[error(transparent)]
    Builds(#[from] BuildsError),
    /// A test failed, or could not run.
    #[error(transparent)]
    Testing(#[from] TestingError),
    /// The harness does not start.
    #[error("failed to start the harness")]
    Start(#[source] io::Error),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(_) if interrupt::came() => ExitCode::from(interrupt::STATUS),
        Err(failure) => {
            say(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let Some(command) = arguments.first() else {
        return Err(Failure::NoCommand);
    };
    let first = First::Leave("completed builds and downloads are kept for the next run");
    interrupt::watch(first).map_err(Failure::Watch)?;
    let settings = Settings::from_env()?;
    if command == "test" {
        testing::run(&settings)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stages = builds::of_command(command, &settings)?;
    let stages = serde_json::to_string(&stages).expect("names and numbers are JSON");
    match become_harness(arguments, &stages)? {}
}

/// Replaces this program by the harness, so that Ctrl-C reaches it.
fn become_harness(arguments: &[String], stages: &str) -> Result<Infallible, Failure> {
    let built = cargo::target_dir().join(AMD64.target).join("debug");
    let mut harness = Command::new(built.join("harness"));
    harness
        .args(arguments)
        .env(EARLIER_STAGES, stages)
        .env(PROGRAMS, built);
    Err(Failure::Start(harness.exec()))
}

/// Prints an error and its causes.
fn say(failure: &Failure) {
    eprintln!("make: {failure}");
    let mut cause = std::error::Error::source(failure);
    while let Some(error) = cause {
        eprintln!("  caused by: {error}");
        cause = error.source();
    }
}
