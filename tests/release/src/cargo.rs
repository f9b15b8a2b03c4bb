//! A cargo without the environment of the cargo that started this program, and flags for its compiler.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable in which cargo takes flags for the compiler, with the character 31 between them.
pub const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";

/// Variables that cargo sets for a program that it runs.
const OF_A_PACKAGE: [&str; 5] = [
    "CARGO_BIN_",
    "CARGO_CRATE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "OUT_DIR",
];

/// A cargo without the variables of the cargo that started this program. Build scripts read some of them (that of ring
/// reads `CARGO_MANIFEST_DIR`), so each of the two would rebuild what the other has built.
pub fn cargo() -> Command {
    clean(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The cargo at a path, in the same way.
pub fn clean(path: impl AsRef<OsStr>) -> Command {
    let mut cargo = Command::new(path);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_a_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Adds flags that replace the paths of folders in compiled code by fixed names, so that the result does not depend on
/// the folder of the build.
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
