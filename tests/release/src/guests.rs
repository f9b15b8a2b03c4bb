//! Builds the guests: core modules by cargo, components by the operator's own library.

pub mod toolchain;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command::{self, CommandError};
use cluster::files::{At, FileError, make_dir};
use ipu_guest_host::model::Hook;
use ipu_guest_host::{ComponentizeError, InspectError, componentize, inspect};
use tempfile::Builder;

use self::toolchain::{TARGET, ToolchainError, WasmToolchain};
use crate::cargo;

/// Stack of a guest, in bytes. Every call clears it: with 1 MiB, this would take as long as the rest of the call.
const STACK: usize = 256 << 10;

/// A guest of this repository in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The name of its component, and of its folder.
    pub name: &'static str,
    /// The folder that contains its folder.
    pub folder: &'static str,
    /// The name of its package.
    pub package: &'static str,
    /// The hook that it is for.
    pub hook: Hook,
}

/// Every example policy that is written in Rust.
pub const EXAMPLES: [Guest; 2] = [
    Guest {
        name: "best-fit",
        folder: "examples/policies",
        package: "best-fit",
        hook: Hook::Placement,
    },
    Guest {
        name: "namespace-quota",
        folder: "examples/policies",
        package: "namespace-quota",
        hook: Hook::Placement,
    },
];

/// Every built-in guest.
pub const GUESTS: [Guest; 4] = [
    Guest {
        name: "defaulting",
        folder: "guests",
        package: "guest-defaulting",
        hook: Hook::Defaulting,
    },
    Guest {
        name: "validation",
        folder: "guests",
        package: "guest-validation",
        hook: Hook::Validation,
    },
    Guest {
        name: "serial-walk",
        folder: "guests",
        package: "guest-serial-walk",
        hook: Hook::Placement,
    },
    Guest {
        name: "fragmentation",
        folder: "guests",
        package: "guest-fragmentation",
        hook: Hook::Placement,
    },
];

/// Failure to build the guests.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no compiler.
    #[error("failed to find a compiler for wasm32")]
    Toolchain(#[from] ToolchainError),
    /// A guest does not compile.
    #[error("failed to compile guest {guest}")]
    Compile {
        /// The guest.
        guest: &'static str,
        /// The error of cargo.
        #[source]
        source: CommandError,
    },
    /// The folder for caches is not known.
    #[error("neither IPU_OPERATOR_CACHE nor HOME is set; set one of them")]
    NoCache,
    /// A guest is not a valid component.
    #[error("failed to turn guest {guest} into a component")]
    Componentize {
        /// The guest.
        guest: &'static str,
        /// The cause.
        #[source]
        source: ComponentizeError,
    },
    /// The operator would refuse a guest.
    #[error("the operator would refuse guest {guest}")]
    Inspect {
        /// The guest.
        guest: &'static str,
        /// The cause.
        #[source]
        source: InspectError,
    },
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Root of this checkout.
pub fn checkout() -> &'static Path {
    let release = Path::new(env!("CARGO_MANIFEST_DIR"));
    // This package is `tests/release`.
    release.ancestors().nth(2).unwrap_or(release)
}

/// Builds all built-in guests into `dist/guests` of this checkout, and returns that folder. It is quick if nothing has
/// changed. The result depends only on the sources and the compiler.
pub fn build() -> Result<PathBuf, BuildError> {
    build_into("dist/guests", &GUESTS)
}

/// Builds the example policies that are written in Rust into `dist/policies`, in the same way.
pub fn build_examples() -> Result<PathBuf, BuildError> {
    build_into("dist/policies", &EXAMPLES)
}

fn build_into(dist: &str, guests: &[Guest]) -> Result<PathBuf, BuildError> {
    let toolchain = toolchain::find(&cache()?)?;
    for &guest in guests {
        command::run(&mut rustc(guest, &toolchain)).map_err(|source| BuildError::Compile {
            guest: guest.name,
            source,
        })?;
    }
    let dist = checkout().join(dist);
    make_dir(&dist)?;
    for &guest in guests {
        let core = core_module(guest);
        let core = fs::read(&core).at("read", &core)?;
        let component = componentize(&core, None).map_err(|source| BuildError::Componentize {
            guest: guest.name,
            source,
        })?;
        put(guest, &dist, &component)?;
    }
    Ok(dist)
}

/// The core module of a guest, as the compiler leaves it; `build` makes it.
pub fn core_module(guest: Guest) -> PathBuf {
    let file = format!("{}.wasm", guest.package.replace('-', "_"));
    target_dir().join(TARGET).join("guest").join(file)
}

/// The folder in which guests are compiled.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| checkout().join("target"), PathBuf::from)
        .join("guests")
}

/// Writes a component into the folder, if the operator would accept it and it has changed.
fn put(guest: Guest, dist: &Path, component: &[u8]) -> Result<(), BuildError> {
    let file = dist.join(format!("{}.wasm", guest.name));
    if fs::read(&file).is_ok_and(|present| present == component) {
        return Ok(());
    }
    // A file of its own, because several tests may build the guests at the same time.
    let partial = Builder::new().prefix(".").tempfile_in(dist);
    let partial = partial.at("write into", dist)?.into_temp_path();
    fs::write(&partial, component).at("write", &partial)?;
    inspect(&partial, Some(guest.hook), "{}").map_err(|source| BuildError::Inspect {
        guest: guest.name,
        source,
    })?;
    let mode = Permissions::from_mode(0o644);
    fs::set_permissions(&partial, mode).at("write", &partial)?;
    Ok(fs::rename(&partial, &file).at("write", &file)?)
}

/// The build of one core module. Only here is a guest a `cdylib`: the file names of such libraries have no hash, so
/// builds with other features would overwrite each other. The build has its own target folder, because it may use
/// another compiler. It uses only the flags that are set here, and the result contains no path of this machine.
fn rustc(guest: Guest, toolchain: &WasmToolchain) -> Command {
    let flags = cargo::naming(
        &format!("-Clink-arg=-zstack-size={STACK}"),
        &[
            (&cargo::home(), "/cargo"),
            (checkout(), "/ipu-operator"),
            (&toolchain.sysroot, "/rust"),
        ],
    );
    let mut command = cargo::cargo();
    command
        .current_dir(checkout())
        .args([
            "rustc",
            "--locked",
            "--profile=guest",
            "--target",
            TARGET,
            "--lib",
            "--crate-type=cdylib",
        ])
        .arg(format!("--package={}", guest.package))
        .env("CARGO_TARGET_DIR", target_dir())
        .env(cargo::FLAGS, flags)
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER");
    if let Some(own) = &toolchain.own {
        command
            .env("RUSTC", &own.rustc)
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", &own.linker);
    }
    command
}

/// The folder for downloads, which is kept between builds.
pub fn cache() -> Result<PathBuf, BuildError> {
    if let Some(cache) = std::env::var_os("IPU_OPERATOR_CACHE") {
        return Ok(PathBuf::from(cache));
    }
    let home = std::env::var_os("HOME").ok_or(BuildError::NoCache)?;
    Ok(Path::new(&home).join(".cache/ipu-operator"))
}
