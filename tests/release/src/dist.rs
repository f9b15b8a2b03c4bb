//! The files of a release: the operator, its agent, the plugin of kubectl and the built-in guests, in the folder
//! `dist`.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub mod aarch64;
pub mod arm64;
pub mod rust;

use cluster::{
    command::{self, CommandError},
    files::{At, FileError, make_dir},
    platform::{AMD64, Platform},
    progress::Progress,
    settings::Settings,
    tools::ToolsError,
};

use self::rust::RustError;
use crate::{
    cargo::{self, cargo},
    guests::{self, GUESTS},
};

/// Failure to build a release.
#[derive(Debug, thiserror::Error)]
pub enum DistError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Cargo failed.
    #[error("failed to build {what}")]
    Cargo {
        /// The part that was built.
        what: &'static str,
        /// The cause.
        #[source]
        source: CommandError,
    },
    /// The guests could not be built.
    #[error("failed to build the guests")]
    Guests(#[from] guests::BuildError),
    /// The target folder of cargo is unknown.
    #[error("failed to read what `cargo metadata` prints")]
    Metadata(#[source] serde_json::Error),
    /// The C compiler for arm64 could not be prepared.
    #[error("failed to prepare the C compiler for arm64")]
    Tools(#[from] ToolsError),
    /// The Rust compiler for arm64 could not be prepared.
    #[error("failed to prepare the Rust compiler for arm64")]
    Rust(#[from] RustError),
    /// A program for arm64 does not run.
    #[error("failed to run a program for arm64 on an emulator")]
    Emulated(#[source] CommandError),
    /// A program for arm64 has another version.
    #[error("a program for arm64 gave this as its version: {0:?}")]
    Version(String),
}

/// A built release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dist {
    programs: Programs,
    simulator: PathBuf,
}

/// File name of the plugin of kubectl. kubectl finds the plugin by it.
pub const PLUGIN: &str = "kubectl-ipu";

/// The files of an image, and the plugin of kubectl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// Their platform. They are static programs, which run in any image.
    pub platform: Platform,
    /// Their folder.
    pub dir: PathBuf,
}

impl Programs {
    /// The files of the image.
    pub fn files(&self) -> Vec<PathBuf> {
        let guests = GUESTS.map(|guest| self.dir.join(format!("guests/{}.wasm", guest.name)));
        let programs = ["ipu-operator", "ipu-agent"].map(|program| self.dir.join(program));
        programs.into_iter().chain(guests).collect()
    }

    /// The plugin of kubectl, which is in no image: users run it on their own machines.
    pub fn plugin(&self) -> PathBuf {
        self.dir.join(PLUGIN)
    }
}

impl Dist {
    /// Builds what has changed, and copies it to `dist`.
    pub fn build(settings: &Settings, progress: &Progress) -> Result<Self, DistError> {
        let checkout = &settings.checkout;
        let target = target_directory(checkout)?;
        progress.run(
            "built the operator, the plugin of kubectl and the V-IPU simulator",
            || {
                let mut cargo = cargo_build(checkout, "release");
                cargo
                    .args(["--package", "ipu-operator", "--bin", "ipu-operator"])
                    .args(["--package", "ipu-kubectl", "--bin", PLUGIN])
                    .args(["--package", "vipu-simulator", "--bin", "vipu-simulator"])
                    // The Makefile builds the harness with these packages too: each crate has the features that all of
                    // them need, and nothing is compiled twice.
                    .args(["--package", "harness"]);
                build("the operator and the plugin of kubectl", &mut cargo)
            },
        )?;
        progress.run("built the agent", || {
            let mut cargo = cargo_build(checkout, "agent");
            // A build of its own: in one build with other packages, it would get their features.
            build("the agent", cargo.args(["--package", "ipu-agent"]))
        })?;
        let dir = checkout.join("dist");
        make_dir(&dir)?;
        let built = target.join(AMD64.target);
        copy_programs(&built, &dir)?;
        progress.run("built the guests", guests::build)?;
        let simulator = built.join("release/vipu-simulator");
        let platform = AMD64;
        Ok(Self {
            programs: Programs { platform, dir },
            simulator,
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.programs.dir
    }

    /// The static program of the V-IPU simulator, which is not part of a release.
    pub fn simulator(&self) -> &Path {
        &self.simulator
    }

    /// The files of the image for the platform of this machine.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }
}

/// `cargo build` of static programs.
fn cargo_build(checkout: &Path, profile: &str) -> Command {
    let mut cargo = cargo();
    cargo
        .args([
            "build",
            "--locked",
            "--quiet",
            "--target",
            AMD64.target,
            "--profile",
            profile,
        ])
        .current_dir(checkout)
        .env(cargo::FLAGS, flags(checkout));
    cargo
}

/// Flags that link the C library into the programs, and make the programs independent of the folder. The Makefile
/// builds the harness with the same flags, so that nothing is compiled twice.
pub fn flags(checkout: &Path) -> OsString {
    let folders = [(&*cargo::home(), "/cargo"), (checkout, "/ipu-operator")];
    cargo::naming("-Ctarget-feature=+crt-static", &folders)
}

fn build(what: &'static str, cargo: &mut Command) -> Result<(), DistError> {
    command::run(cargo).map_err(|source| DistError::Cargo { what, source })
}

fn target_directory(checkout: &Path) -> Result<PathBuf, DistError> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let mut cargo = cargo();
    cargo
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(checkout);
    let printed = command::output(&mut cargo).map_err(|source| DistError::Cargo {
        what: "anything",
        source,
    })?;
    let metadata: Metadata = serde_json::from_str(&printed).map_err(DistError::Metadata)?;
    Ok(metadata.target_directory)
}

/// Copies the programs of a release from the folder in which cargo has built them.
fn copy_programs(built: &Path, dir: &Path) -> Result<(), FileError> {
    for (profile, name) in [
        ("release", "ipu-operator"),
        ("agent", "ipu-agent"),
        ("release", PLUGIN),
    ] {
        copy(&built.join(profile).join(name), &dir.join(name))?;
    }
    Ok(())
}

/// Copies a program if it has changed, so that an unchanged file keeps its time.
fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    let content = fs::read(from).at("read", from)?;
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::copy(from, to).at("write", to).map(drop)
}
