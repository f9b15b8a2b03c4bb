//! Finds a compiler for wasm32 without a change of the user's toolchain: that toolchain if it has
//! the target, otherwise Debian trixie's compiler, unpacked into the cache folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, CommandError};
use crate::debian::{DebianError, Pinned};
use crate::files::{At, FileError, remove, sha256_of, write};
use crate::lock::Lock;

/// The target that guests are compiled for.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// The packages that make up the compiler.
const LOCK: &str = include_str!("../../../tools/wasm-rustc.lock");

/// Debian release of the packages.
const SUITE: &str = "trixie";

/// Compiler of guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WasmToolchain {
    /// The compiler and its linker. `None`: the user's own compiler.
    pub own: Option<OwnCompiler>,
    /// Root of the compiler's files. The compiled code must not contain this path.
    pub sysroot: PathBuf,
}

/// A compiler in the cache folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCompiler {
    /// The compiler.
    pub rustc: PathBuf,
    /// The linker: the user's toolchain has one for every target.
    pub linker: PathBuf,
}

/// Failure to provide a compiler for wasm32.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// The user's compiler does not run.
    #[error("failed to ask rustc for its folder")]
    Rustc(#[source] CommandError),
    /// A file or folder cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no linker for wasm32.
    #[error(
        "no rust-lld in {0}, and the guests need it to be linked: install the complete Rust \
         toolchain (rustup does), or add the target with `rustup target add wasm32-unknown-unknown`"
    )]
    NoLinker(PathBuf),
    /// The toolchain does not have this target, and the machine does not run Debian.
    #[error(
        "the Rust toolchain cannot compile for wasm32-unknown-unknown and this machine has no \
         apt-get to fetch one that can: run `rustup target add wasm32-unknown-unknown`"
    )]
    NotDebian,
    /// Debian's compiler is not available.
    #[error(
        "failed to fetch Debian's compiler for wasm32-unknown-unknown; with `rustup target add \
         wasm32-unknown-unknown` it is not needed"
    )]
    Fetch(#[from] DebianError),
}

/// Returns the user's own toolchain if it can compile for wasm32, otherwise the one in `cache`,
/// after unpacking it if it is missing.
pub fn find(cache: &Path) -> Result<WasmToolchain, ToolchainError> {
    let printed = command::output(Command::new("rustc").args(["--print", "sysroot"]))
        .map_err(ToolchainError::Rustc)?;
    let sysroot = PathBuf::from(printed.trim());
    if has_target(&sysroot) {
        return Ok(WasmToolchain { own: None, sysroot });
    }
    let linker = linker(&sysroot)?;
    let key = sha256_of(LOCK);
    let home = cache.join(format!("wasm-rustc-1.85.1-{}", &key[..12]));
    if !home.is_dir() {
        // The tests of one process share the folder of the unpacked compiler.
        let _lock = Lock::take(&cache.join("wasm-rustc.lock"))?;
        if !home.is_dir() {
            unpack(&home)?;
        }
    }
    Ok(WasmToolchain {
        own: Some(OwnCompiler {
            rustc: home.join("rustc"),
            linker,
        }),
        sysroot: home,
    })
}

fn has_target(sysroot: &Path) -> bool {
    let libraries = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    fs::read_dir(libraries).is_ok_and(|entries| {
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
    })
}

fn linker(sysroot: &Path) -> Result<PathBuf, ToolchainError> {
    let hosts = fs::read_dir(sysroot.join("lib/rustlib")).at("read", sysroot)?;
    hosts
        .filter_map(Result::ok)
        .map(|host| host.path().join("bin/rust-lld"))
        .find(|linker| linker.is_file())
        .ok_or_else(|| ToolchainError::NoLinker(sysroot.to_owned()))
}

/// Unpacks the compiler into a folder beside `home`, and renames this folder to `home` when it is
/// complete.
fn unpack(home: &Path) -> Result<(), ToolchainError> {
    if Command::new("apt-get").arg("--version").output().is_err() {
        return Err(ToolchainError::NotDebian);
    }
    let partial = home.with_extension(format!("partial-{}", std::process::id()));
    let apt = partial.join("apt");
    Pinned::parse("tests/tools/wasm-rustc.lock", SUITE, LOCK)?.unpack(&apt, &partial)?;
    for unused in [&apt, &partial.join("usr/share")] {
        remove(unused)?;
    }
    write_wrapper(&partial, home)?;
    match fs::rename(&partial, home) {
        // Another process was faster, with the same result.
        Err(_) if home.is_dir() => Ok(remove(&partial)?),
        renamed => Ok(renamed.at("make", home)?),
    }
}

/// The compiler needs a newer C library than the machine may have, so its own loader starts it.
fn write_wrapper(partial: &Path, home: &Path) -> Result<(), FileError> {
    let libraries = home.join("usr/lib/x86_64-linux-gnu");
    let wrapper = partial.join("rustc");
    let script = format!(
        "#!/bin/sh\nexec '{libraries}/ld-linux-x86-64.so.2' --library-path '{libraries}' \
         '{home}/usr/bin/rustc' \"$@\"\n",
        libraries = libraries.display(),
        home = home.display(),
    );
    write(&wrapper, script)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).at("make executable", &wrapper)
}
