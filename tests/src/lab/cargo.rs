//! A cargo that does not notice that another cargo started this program.

use std::env;
use std::process::Command;

/// What cargo sets for the program of a package that it runs.
const OF_A_PACKAGE: [&str; 5] = [
    "CARGO_BIN_",
    "CARGO_CRATE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "OUT_DIR",
];

/// A cargo without what the cargo that started this program has set for it. Build scripts look at
/// some of these variables (that of ring at `CARGO_MANIFEST_DIR`), and each of the two would build
/// again what the other has built.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_a_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}

fn is_of_a_package(name: &str) -> bool {
    OF_A_PACKAGE.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn nothing_of_this_package_is_passed_on() {
        let cargo = cargo();
        let removed: Vec<_> = cargo.get_envs().map(|(name, _)| name).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            assert!(removed.contains(&OsStr::new(name)), "{name}: {removed:?}");
        }
    }

    #[test]
    fn what_the_user_sets_stays() {
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
