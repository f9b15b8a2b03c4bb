//! `make test`: builds, then runs every suite, and prints how long each stage and the slowest tests
//! took.
//!
//! The API-server suite and the trials on nodes mostly wait for other processes, so they run side
//! by side. Programs of MPI do not reach each other on busy cores, so a part of the suite waits for
//! those trials. The load test compares delays: it is the last trial, and waits until the other
//! suite has ended.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::builds::{self, BuildsError};
use crate::cargo::{self, cargo};
use crate::files::{At, FileError, make_dir, remove, write};
use crate::platform::AMD64;
use crate::programs::PROGRAMS;
use crate::progress::Stage;
use crate::settings::Settings;

mod report;
mod suites;

use self::report::Report;
use self::suites::{API_SERVER, API_SERVER_LATER, NODES, QUICK, SIMULATION, Suite};

/// The variable with the file that appears when the load test may begin.
const QUIET: &str = "IPU_OPERATOR_QUIET_AFTER";
const QUIET_FILE: &str = "no-other-work-is-left";
/// The variable with the file that the trials write once those that remain tolerate more work
/// beside them.
const TOLERANT: &str = "IPU_OPERATOR_TOLERANT_FROM";
const TOLERANT_FILE: &str = "trials-tolerate-more-work";
/// Time between two looks at that file.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The variable with the file to which the trials append their times.
const TIMES: &str = "IPU_OPERATOR_TEST_TIMES";

/// How many tests the table of the slowest ones has.
const SLOWEST: usize = 20;

/// Failure of the tests.
#[derive(Debug, thiserror::Error)]
pub enum TestingError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Something could not be built.
    #[error(transparent)]
    Builds(#[from] BuildsError),
    /// A command could not be started, or its output could not be read.
    #[error("failed to run {suite}")]
    Run {
        /// The suite.
        suite: &'static str,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Tests failed.
    #[error("these failed: {}; their output is above", .suites.join(", "))]
    Failed {
        /// The suites.
        suites: Vec<&'static str>,
    },
}

/// Runs all tests. Returns an error that names the failed suites, after the others have run.
pub fn run(settings: &Settings) -> Result<(), TestingError> {
    let begin = Instant::now();
    let logs = cargo::target_dir().join("test-logs");
    remove(&logs)?;
    make_dir(&logs)?;
    let mut report = Report::default();
    report.stages(builds::of_tests(settings, build())?);
    for ended in quick(&logs)?.iter().chain(&on_servers(&logs)?) {
        report.ended(ended);
    }
    report.times(&read_or_nothing(&logs.join("times")));
    print!("{}", report.tables(SLOWEST, &Stage::whole(begin.elapsed())));
    match report.failed() {
        failed if failed.is_empty() => Ok(()),
        suites => Err(TestingError::Failed { suites }),
    }
}

/// The quick tests. The simulation keeps one core busy for a minute, so it runs beside the others.
fn quick(logs: &Path) -> Result<[Ended; 2], TestingError> {
    thread::scope(|scope| {
        let simulation = scope.spawn(|| run_silently(&SIMULATION, logs));
        let quick = run_here(&QUICK, logs);
        let simulation = joined(simulation)?;
        print!("{}", simulation.without_passed());
        Ok([quick?, simulation])
    })
}

/// The trials on nodes, and beside them the tests on an API server: one part from the beginning,
/// and the other part as soon as the trials that remain tolerate it.
fn on_servers(logs: &Path) -> Result<[Ended; 3], TestingError> {
    let quiet = logs.join(QUIET_FILE);
    let tolerant = logs.join(TOLERANT_FILE);
    let trials_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = scope.spawn(|| run_silently(&API_SERVER, logs));
        let second = scope.spawn(|| {
            while !tolerant.exists() && !trials_ended.load(Ordering::Relaxed) {
                thread::sleep(LOOK_AGAIN);
            }
            run_silently(&API_SERVER_LATER, logs)
        });
        let api_server = scope.spawn(|| {
            let (first, second) = (joined(first), joined(second));
            // Also after a failure: the load test would wait for ever.
            write(&quiet, "")?;
            Ok::<_, TestingError>([first?, second?])
        });
        let nodes = run_here(&NODES, logs);
        trials_ended.store(true, Ordering::Relaxed);
        let [first, second] = joined(api_server)?;
        print!("{}{}", first.without_passed(), second.without_passed());
        Ok([nodes?, first, second])
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Builds the long tests too, which only `make test-full` runs, so that they compile after each
/// change.
const LONG: &str = "--features=tests/long";

/// The cargo call that builds all tests and, as part of them, the programs that they run.
fn build() -> Command {
    let mut build = cargo();
    build.args(["test", "--locked", "--no-run", "--workspace", LONG]);
    cargo::with_lints(&mut build);
    for suite in [&QUICK, &API_SERVER, &NODES] {
        build.args(suite.targets);
    }
    build
}

/// A suite that has ended.
pub(crate) struct Ended {
    suite: &'static str,
    succeeded: bool,
    stage: Stage,
    /// All that it printed.
    printed: String,
}

impl Ended {
    /// What it printed, without the lines of passed tests.
    fn without_passed(&self) -> String {
        let lines = self.printed.split_inclusive('\n');
        lines.filter(|line| !report::is_passed(line)).collect()
    }
}

/// Runs a suite, and prints its output while it runs, without the lines of passed tests.
fn run_here(suite: &Suite, logs: &Path) -> Result<Ended, TestingError> {
    run_with(suite, logs, |line| {
        if !report::is_passed(line) {
            println!("{line}");
        }
    })
}

/// The same, but prints nothing.
fn run_silently(suite: &Suite, logs: &Path) -> Result<Ended, TestingError> {
    run_with(suite, logs, |_| {})
}

fn run_with(suite: &Suite, logs: &Path, mut line: impl FnMut(&str)) -> Result<Ended, TestingError> {
    let failed = |source| TestingError::Run {
        suite: suite.name,
        source,
    };
    let begin = Instant::now();
    let (reader, writer) = io::pipe().map_err(failed)?;
    let errors = writer.try_clone().map_err(failed)?;
    let mut command = command(suite, logs);
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let mut child = command.spawn().map_err(failed)?;
    // It holds the other end of the pipe.
    drop(command);
    let mut printed = String::new();
    for read in BufReader::new(reader).lines() {
        let read = read.map_err(failed)?;
        line(&read);
        printed.push_str(&read);
        printed.push('\n');
    }
    let status = child.wait().map_err(failed)?;
    let log = logs.join(format!("{}.log", suite.file));
    fs::write(&log, &printed).at("write", &log)?;
    Ok(Ended {
        suite: suite.name,
        succeeded: status.success(),
        stage: Stage::of(suite.name, begin.elapsed()),
        printed,
    })
}

fn command(suite: &Suite, logs: &Path) -> Command {
    let built = cargo::target_dir().join(AMD64.target).join("debug");
    let mut command = cargo();
    cargo::with_lints(&mut command)
        .args(["test", "--locked", "--no-fail-fast", "--workspace", LONG])
        .args(["--target", AMD64.target])
        .args(suite.targets)
        .arg("--")
        .args(suite.arguments)
        .current_dir(crate::settings::checkout())
        .env(cargo::FLAGS, cargo::STATIC)
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER)
        .env("INSTA_UPDATE", "no")
        .env(PROGRAMS, built)
        .env(TIMES, logs.join("times"))
        .env(QUIET, logs.join(QUIET_FILE))
        .env(TOLERANT, logs.join(TOLERANT_FILE));
    command
}

/// What starts each test program: see [`cargo::BOOTSTRAP`].
const RUNNER: &str = "env RUSTC_BOOTSTRAP=1";

fn read_or_nothing(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
