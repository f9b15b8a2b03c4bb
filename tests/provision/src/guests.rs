//! Compiles the guests' core modules with cargo. The operator's own library makes components of
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

pub mod toolchain;

use self::toolchain::{TARGET, ToolchainError, WasmToolchain};
use crate::cargo;
use crate::command::{self, CommandError};
use crate::settings::{Settings, SettingsError};

/// The packages of the guests in the operator's image.
pub const BUILT_IN: [&str; 6] = [
    "guest-defaulting",
    "guest-validation",
    "guest-serial-walk",
    "guest-fragmentation",
    "guest-cel",
    "namespace-quota",
];

/// Stack of a guest, in bytes. Every call clears it: with 1 MiB, this would take as long as the
/// rest of the call.
const STACK: usize = 256 << 10;

/// Failure to compile a guest.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// There is no compiler.
    #[error("failed to find a compiler for wasm32")]
    Toolchain(#[from] ToolchainError),
    /// The folder of caches is unknown.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A guest does not compile.
    #[error("failed to compile {package}")]
    Compile {
        /// Package of the guest.
        package: String,
        /// The error of cargo.
        #[source]
        source: CommandError,
    },
}

/// Compiles the core modules of these packages. It is quick if nothing has changed. `compiled`
/// receives the name of each package when it is done.
pub fn compile(packages: &[&str], mut compiled: impl FnMut(&str)) -> Result<(), CompileError> {
    let settings = Settings::from_env()?;
    let toolchain = toolchain::find(&settings.cache)?;
    for package in packages {
        let mut rustc = rustc(package, &toolchain, &settings.checkout);
        command::run(&mut rustc).map_err(|source| CompileError::Compile {
            package: (*package).to_owned(),
            source,
        })?;
        compiled(package);
    }
    Ok(())
}

/// The core module of a package, as the compiler leaves it; [`compile`] makes it.
pub fn core_module(package: &str) -> PathBuf {
    let file = format!("{}.wasm", package.replace('-', "_"));
    target_dir().join(TARGET).join("guest").join(file)
}

/// The folder in which guests are compiled.
pub fn target_dir() -> PathBuf {
    cargo::target_dir().join("guests")
}

/// The build of one core module. Only here is a guest a `cdylib`: the file names of such libraries
/// have no hash, so builds with other features would overwrite each other. The build has its own
/// target folder, because it may use another compiler. It uses only the flags that are set here,
/// and the result contains no path of this machine.
fn rustc(package: &str, toolchain: &WasmToolchain, checkout: &Path) -> Command {
    let flags = cargo::naming(
        &format!("-Clink-arg=-zstack-size={STACK}"),
        &[
            (&cargo::home(), "/cargo"),
            (checkout, "/ipu-operator"),
            (&toolchain.sysroot, "/rust"),
        ],
    );
    let mut command = cargo::cargo();
    command
        .current_dir(checkout)
        .args([
            "rustc",
            "--locked",
            "--profile=guest",
            "--target",
            TARGET,
            "--lib",
            "--crate-type=cdylib",
        ])
        .arg(format!("--package={package}"))
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
