//! A cargo without the environment of the cargo that started this program, and flags for its
//! compiler.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable in which cargo takes flags for the compiler, with the character 31 between them.
pub const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";

/// The flag that links the C library into a program.
pub const STATIC: &str = "-Ctarget-feature=+crt-static";

/// The variable that lets a stable test runner print the time of each test. No compiler may see it:
/// the build scripts of some crates would use what only a nightly compiler has.
pub const BOOTSTRAP: &str = "RUSTC_BOOTSTRAP";

/// Variables of a build of this repository, which would change any other build.
const OF_THIS_BUILD: [&str; 4] = [
    BOOTSTRAP,
    "CARGO_BUILD_TARGET",
    "CLIPPY_ARGS",
    "RUSTC_WORKSPACE_WRAPPER",
];

/// Variables that cargo sets for a program that it runs.
const OF_A_PACKAGE: [&str; 5] = [
    "CARGO_BIN_",
    "CARGO_CRATE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "OUT_DIR",
];

/// Makes lints errors of a build: clippy's compiler compiles the crates of the workspace.
pub fn with_lints(cargo: &mut Command) -> &mut Command {
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").env(
        "CLIPPY_ARGS",
        "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
    )
}

/// A cargo without the variables of the cargo that started this program. Build scripts read some of
/// them (that of ring reads `CARGO_MANIFEST_DIR`), so each of the two would rebuild what the other
/// has built.
pub fn cargo() -> Command {
    clean(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The cargo at a path, in the same way.
pub fn clean(path: impl AsRef<OsStr>) -> Command {
    let mut cargo = Command::new(path);
    for name in OF_THIS_BUILD {
        cargo.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_a_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Adds flags that replace the paths of folders in compiled code by fixed names, so that the result
/// does not depend on the folder of the build.
pub fn naming(flag: &str, folders: &[(&Path, &str)]) -> OsString {
    let mut flags = OsString::from(flag);
    for (folder, name) in folders {
        flags.push("\u{1f}--remap-path-prefix=");
        flags.push(folder);
        flags.push("=");
        flags.push(name);
    }
    flags
}

/// The folder in which cargo builds this repository.
pub fn target_dir() -> PathBuf {
    let own = || crate::settings::checkout().join("target");
    env::var_os("CARGO_TARGET_DIR").map_or_else(own, PathBuf::from)
}

/// The folder in which cargo keeps the sources of crates.
pub fn home() -> PathBuf {
    let home = || env::home_dir().unwrap_or_default().join(".cargo");
    env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

fn is_of_a_package(name: &str) -> bool {
    OF_A_PACKAGE.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variable_of_this_package_is_passed_on() {
        let cargo = cargo();
        let removed: Vec<_> = cargo.get_envs().map(|(name, _)| name).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            assert!(removed.contains(&OsStr::new(name)), "{name}: {removed:?}");
        }
    }

    #[test]
    fn variables_of_the_user_remain() {
        for name in [
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_JOBS",
            "CARGO_NET_OFFLINE",
        ] {
            assert!(!is_of_a_package(name), "{name}");
        }
    }
}
