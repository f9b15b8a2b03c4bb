//! What is built before a command runs: programs with cargo, tools with Go, guests, and the image
//! of jobs; side by side, because none of them uses all cores all the time.

use std::process::Command;

use crate::cargo::{self, cargo};
use crate::command::{self, CommandError};
use crate::guests::{self, CompileError};
use crate::images::openmpi::{self, OpenMpi};
use crate::images::{ImageError, system};
use crate::interrupt;
use crate::lanes::{self, Lane, Work};
use crate::platform::AMD64;
use crate::programs;
use crate::progress::{Progress, Stage};
use crate::settings::Settings;
use crate::tools::{Tools, ToolsError, go};

mod bar_text;

/// Processor time of each build with empty caches, in seconds. BENCHMARKS.md has the measured
/// stages.
const CRATES: f64 = 560.0;
const CRATES_OF_TESTS: f64 = 1100.0;
const GO_PACKAGE: f64 = 0.4;
const GUESTS: f64 = 100.0;
const IMAGE: f64 = 40.0;

/// Failure of a build.
#[derive(Debug, thiserror::Error)]
pub enum BuildsError {
    /// Cargo failed.
    #[error("failed to build the crates")]
    Cargo(#[source] CommandError),
    /// A tool could not be built or downloaded.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A guest could not be compiled.
    #[error(transparent)]
    Guests(#[from] CompileError),
    /// An image could not be made.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Builds what a command of the harness needs. Returns how long each build took.
pub fn of_command(command: &str, settings: &Settings) -> Result<Vec<Stage>, BuildsError> {
    let mut cargo = cargo();
    cargo.args(programs::BUILD);
    let crates = Lane::new("cargo: the programs", "crates", 1, CRATES);
    if !["demo", "up"].contains(&command) {
        let compile = Box::new(|| compile(cargo, &crates));
        return lanes::run(vec![(&crates, compile)], interrupt::end_commands);
    }
    side_by_side(settings, &go::OF_CLUSTER, &[OpenMpi::Four], &crates, cargo)
}

/// Builds the tests with the programs that they run, and all tools that `make test` needs. Returns
/// how long each build took.
pub fn of_tests(settings: &Settings, tests: Command) -> Result<Vec<Stage>, BuildsError> {
    let crates = Lane::new("cargo: the tests", "crates", 1, CRATES_OF_TESTS);
    let images = [OpenMpi::Four, OpenMpi::Five];
    side_by_side(settings, &go::of_tests(), &images, &crates, tests)
}

fn side_by_side(
    settings: &Settings,
    tools: &[&str],
    mpis: &[OpenMpi],
    crates: &Lane,
    cargo: Command,
) -> Result<Vec<Stage>, BuildsError> {
    let packages = Tools::count_packages(settings, tools)?;
    #[expect(clippy::cast_precision_loss, reason = "there are some thousands")]
    let seconds = packages as f64 * GO_PACKAGE;
    let go = Lane::new(
        "Go: the tools of the cluster",
        "Go packages",
        packages,
        seconds,
    );
    let count = guests::BUILT_IN.len();
    let compiled = Lane::timed("cargo: the guests", "guests", count, GUESTS);
    let images = Lane::timed("Debian: the images of jobs", "images", mpis.len(), IMAGE);
    let progress = Progress::hidden();
    let works: Vec<Work<'_, BuildsError>> = vec![
        (crates, Box::new(|| compile(cargo, crates))),
        (
            &go,
            Box::new(|| {
                let advance = |package: &str| go.advance(package);
                let tools = Tools::fetch_counted(settings, &progress, tools, &advance)?;
                system(settings, &tools, &progress)?;
                Ok(())
            }),
        ),
        (
            &compiled,
            Box::new(|| {
                Ok(guests::compile(&guests::BUILT_IN, |package| {
                    compiled.advance(package);
                })?)
            }),
        ),
        (
            &images,
            Box::new(|| {
                let tools = Tools::of_images(settings, &progress)?;
                for mpi in mpis {
                    openmpi::ensure(settings, &tools, &progress, *mpi)?;
                    images.advance(mpi.image());
                }
                Ok(())
            }),
        ),
    ];
    lanes::run(works, interrupt::end_commands)
}

/// Runs a cargo that prints its bar, and reads how far it is.
fn compile(mut cargo: Command, crates: &Lane) -> Result<(), BuildsError> {
    cargo
        .args(["--target", AMD64.target])
        .current_dir(crate::settings::checkout())
        .env(cargo::FLAGS, cargo::STATIC)
        .env("CARGO_TERM_PROGRESS_WHEN", "always")
        .env("CARGO_TERM_PROGRESS_WIDTH", "120");
    let read = |line: &str| {
        if let Some(state) = bar_text::read(line) {
            crates.set(state.done, state.total, state.now);
        }
    };
    command::stream(&mut cargo, read).map_err(BuildsError::Cargo)
}
