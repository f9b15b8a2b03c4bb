//! The files of a release: the operator, its agent, the plugin of kubectl and the built-in guests,
//! in the folder `dist`; and the same files as tests and the demo use them, compiled in a quarter
//! of the time.

use std::{
    env,
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

pub use provision::programs::PROGRAMS;

use self::rust::RustError;
use crate::{
    cargo::{self, STATIC, cargo},
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
    /// A program of the quick profile could not be made smaller.
    #[error(
        "failed to remove the debug information of {program}; `strip` is in the package binutils"
    )]
    Strip {
        /// The program.
        program: &'static str,
        /// The cause.
        #[source]
        source: CommandError,
    },
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

/// How the programs are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As the tests are: quickly, with checks of overflows, and with paths of this machine.
    Dev,
    /// Small, quick at run time, and the same bytes in every folder.
    Release,
}

/// The variable that chooses the profile of the programs on nodes: `release`, or otherwise the
/// quick one.
pub const PROFILE: &str = "IPU_OPERATOR_PROFILE";

impl Profile {
    /// The profile that the environment asks for.
    pub fn from_env() -> Self {
        match env::var_os(PROFILE) {
            Some(profile) if profile == "release" => Self::Release,
            _ => Self::Dev,
        }
    }

    /// The folder of its programs and guests.
    pub fn folder(self, checkout: &Path) -> PathBuf {
        let dist = checkout.join("dist");
        match self {
            Self::Dev => dist.join("dev"),
            Self::Release => dist,
        }
    }
}

/// A built release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dist {
    profile: Profile,
    programs: Programs,
    simulator: PathBuf,
}

/// File name of the plugin of kubectl. kubectl finds the plugin by it.
pub const PLUGIN: &str = "kubectl-ipu";

/// The files in the image over which the Pods of a job mount others, where the image is a volume.
pub const MOUNTED: [&str; 2] = ["kubeexec.sh", "hostfile"];

/// File name of the V-IPU simulator.
const SIMULATOR: &str = "vipu-simulator";

/// Features of the programs of a release, which tests and the demo leave off because they take long
/// to compile.
const RELEASE_FEATURES: &str = "ipu-operator/jemalloc";

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
        let mounted = MOUNTED.map(|file| self.dir.join(file));
        programs.into_iter().chain(mounted).chain(guests).collect()
    }

    /// The plugin of kubectl, which is in no image: users run it on their own machines.
    pub fn plugin(&self) -> PathBuf {
        self.dir.join(PLUGIN)
    }
}

impl Dist {
    /// Builds what has changed, and copies it to `dist`, or for the quick profile to `dist/dev`.
    pub fn build(
        settings: &Settings,
        profile: Profile,
        progress: &Progress,
    ) -> Result<Self, DistError> {
        let checkout = &settings.checkout;
        let dir = profile.folder(checkout);
        let simulator = match profile {
            Profile::Dev => quick(checkout, &dir, progress)?,
            Profile::Release => released(checkout, &dir, progress)?,
        };
        progress.run("built the guests", || {
            guests::build_into(&dir.join("guests"), &GUESTS)
        })?;
        for file in MOUNTED {
            copy(
                &checkout.join("host/agent/mounted").join(file),
                &dir.join(file),
            )?;
        }
        let platform = AMD64;
        Ok(Self {
            profile,
            programs: Programs { platform, dir },
            simulator,
        })
    }

    /// How its programs were compiled.
    pub fn profile(&self) -> Profile {
        self.profile
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

/// Puts the programs of the quick profile into the folder, without their debug information, which
/// would be half of each image. Returns the path of the simulator.
fn quick(checkout: &Path, dir: &Path, progress: &Progress) -> Result<PathBuf, DistError> {
    let built = match env::var_os(PROGRAMS) {
        Some(built) => PathBuf::from(built),
        None => progress.run("built the programs", || {
            build("the programs", &mut quick_build(checkout)).map(|()| quick_folder())
        })?,
    };
    make_dir(dir)?;
    for program in ["ipu-operator", "ipu-agent", PLUGIN, SIMULATOR] {
        let (from, to) = (built.join(program), dir.join(program));
        if is_newer(&from, &to) {
            let mut strip = Command::new("strip");
            strip.arg("-o").arg(&to).arg(&from);
            command::run(&mut strip).map_err(|source| DistError::Strip { program, source })?;
        }
    }
    Ok(dir.join(SIMULATOR))
}

/// The build of the quick profile. `provision` has done it before, with a bar; here it is for those
/// who start a test by hand.
fn quick_build(checkout: &Path) -> Command {
    let mut cargo = cargo();
    cargo
        .args(provision::programs::BUILD)
        .arg("--quiet")
        .args(["--target", AMD64.target])
        .current_dir(checkout)
        .env(cargo::FLAGS, STATIC);
    cargo
}

fn quick_folder() -> PathBuf {
    cargo::target_dir().join(AMD64.target).join("debug")
}

/// Whether a file was written after its copy.
fn is_newer(file: &Path, copy: &Path) -> bool {
    let written = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    match (written(file), written(copy)) {
        (Ok(file), Ok(copy)) => file >= copy,
        _ => true,
    }
}

/// Puts the programs of a release into the folder. Returns the path of the simulator, which is not
/// part of it.
fn released(checkout: &Path, dir: &Path, progress: &Progress) -> Result<PathBuf, DistError> {
    let what = "built the operator, the plugin of kubectl and the V-IPU simulator";
    progress.run(what, || {
        let mut cargo = release_build(checkout, "release");
        cargo
            .args(["--package", "ipu-operator", "--bin", "ipu-operator"])
            .args(["--package", "ipu-kubectl", "--bin", PLUGIN])
            .args(["--package", "vipu-simulator", "--bin", SIMULATOR])
            .args(["--features", RELEASE_FEATURES]);
        build("the operator and the plugin of kubectl", &mut cargo)
    })?;
    progress.run("built the agent", || {
        let mut cargo = release_build(checkout, "agent");
        // A build of its own: in one build with other packages, it would get their features.
        build("the agent", cargo.args(["--package", "ipu-agent"]))
    })?;
    make_dir(dir)?;
    let built = cargo::target_dir().join(AMD64.target);
    copy_programs(&built, dir)?;
    Ok(built.join("release").join(SIMULATOR))
}

/// `cargo build` of static programs for a release.
fn release_build(checkout: &Path, profile: &str) -> Command {
    let mut cargo = cargo();
    cargo
        .args(["build", "--locked", "--quiet"])
        .args(["--target", AMD64.target, "--profile", profile])
        .current_dir(checkout)
        .env(cargo::FLAGS, flags(checkout));
    cargo
}

/// Flags that link the C library into the programs, and make the programs independent of the
/// folder.
pub fn flags(checkout: &Path) -> OsString {
    let folders = [(&*cargo::home(), "/cargo"), (checkout, "/ipu-operator")];
    cargo::naming(STATIC, &folders)
}

fn build(what: &'static str, cargo: &mut Command) -> Result<(), DistError> {
    command::run(cargo).map_err(|source| DistError::Cargo { what, source })
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
