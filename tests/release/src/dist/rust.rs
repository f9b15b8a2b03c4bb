//! A cargo that builds for another target without a change of the user's toolchain. If that
//! toolchain lacks the target's standard library, rustup fetches the same version into the cache.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command::{self, CommandError};
use cluster::files::{FileError, remove};
use cluster::lock::Lock;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::stored;

use crate::cargo::{cargo, clean};

/// Failure to provide a toolchain.
#[derive(Debug, thiserror::Error)]
pub enum RustError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The user's compiler does not run.
    #[error("failed to ask rustc for its version and folder")]
    Ask(#[source] CommandError),
    /// The toolchain lacks a target, and rustup cannot fetch it.
    #[error(
        "the Rust toolchain cannot compile for {target}, and rustup did not fetch one that can: install \
         rustup, or Rust {version} with the standard library for {target}"
    )]
    Target {
        /// Version of the toolchain.
        version: String,
        /// The target.
        target: String,
        /// The cause.
        #[source]
        source: CommandError,
    },
}

/// Settings of the compiler for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rust {
    /// The folder of compiler and cargo. `None`: the user's own.
    own: Option<PathBuf>,
}

impl Rust {
    /// Finds a toolchain for this target, or fetches it.
    pub fn ensure(
        target: &str,
        settings: &Settings,
        progress: &Progress,
    ) -> Result<Self, RustError> {
        let sysroot = ask(&["--print", "sysroot"])?;
        if has_target(Path::new(sysroot.trim()), target) {
            return Ok(Self { own: None });
        }
        let about = ask(&["--version", "--verbose"])?;
        let (version, host) = (field(&about, "release: "), field(&about, "host: "));
        let dir = settings.cache.join(format!("rust-{version}-{target}"));
        let _lock = Lock::take(&settings.cache.join("rust.lock"))?;
        let inputs = format!("{about}{target}");
        if !stored::is_intact(&dir, &inputs) {
            let what = format!("fetched Rust {version} for {target}");
            stored::make(&dir, &inputs, |home| {
                progress.run(what, || fetch(home, version, target))
            })?;
        }
        let toolchain = dir.join("toolchains").join(format!("{version}-{host}"));
        Ok(Self {
            own: Some(toolchain.join("bin")),
        })
    }

    /// Its cargo.
    pub fn cargo(&self) -> Command {
        let Some(bin) = &self.own else {
            return cargo();
        };
        let mut cargo = clean(bin.join("cargo"));
        // rustup's own programs would use the user's toolchain. So would the compiler, if the cargo
        // that started this program has set the path of its libraries: the compiler looks for
        // targets beside them.
        cargo
            .env("RUSTC", bin.join("rustc"))
            .env_remove("RUSTDOC")
            .env_remove("LD_LIBRARY_PATH");
        cargo
    }
}

fn ask(about: &[&str]) -> Result<String, RustError> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    command::output(Command::new(rustc).args(about)).map_err(RustError::Ask)
}

/// Returns the value of a line in the compiler's description.
fn field<'a>(about: &'a str, name: &str) -> &'a str {
    let found = about.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap_or_default()
}

fn has_target(sysroot: &Path, target: &str) -> bool {
    let libraries = sysroot.join("lib/rustlib").join(target).join("lib");
    fs::read_dir(libraries).is_ok_and(|entries| {
        let mut names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        names.any(|name| name.to_string_lossy().starts_with("libcore-"))
    })
}

/// Fills `home` as the home of a rustup with only this toolchain.
fn fetch(home: &Path, version: &str, target: &str) -> Result<(), RustError> {
    let mut rustup = Command::new("rustup");
    rustup
        .args(["--quiet", "toolchain", "install", version])
        .args(["--profile", "minimal", "--target", target])
        .arg("--no-self-update")
        .env("RUSTUP_HOME", home)
        .env_remove("RUSTUP_TOOLCHAIN");
    command::run(&mut rustup).map_err(|source| RustError::Target {
        version: version.to_owned(),
        target: target.to_owned(),
        source,
    })?;
    for unused in ["downloads", "tmp"] {
        remove(&home.join(unused))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_host_are_read_from_what_the_compiler_says() {
        let about = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
                     host: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        assert_eq!(field(about, "release: "), "1.95.0");
        assert_eq!(field(about, "host: "), "x86_64-unknown-linux-gnu");
    }

    #[test]
    fn a_target_with_its_standard_library_is_available() {
        let sysroot = tempfile::tempdir().unwrap();
        let libraries = sysroot.path().join("lib/rustlib/some-target/lib");
        fs::create_dir_all(&libraries).unwrap();
        assert!(!has_target(sysroot.path(), "some-target"));
        fs::write(libraries.join("libcore-1234.rlib"), "").unwrap();
        assert!(has_target(sysroot.path(), "some-target"));
        assert!(!has_target(sysroot.path(), "other-target"));
    }
}
