//! Finds a compiler for wasm32 without changing the user's toolchain: that toolchain where it has the
//! target, else Debian trixie's compiler, unpacked into the cache folder.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::lab::interrupt;

/// The target that guests are compiled for.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// The packages that make up the compiler.
const LOCK: &str = include_str!("wasm-rustc.lock");

/// How guests are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WasmToolchain {
    /// The compiler, where it is not the user's own, and the linker to go with it.
    pub own: Option<OwnCompiler>,
    /// Root of the compiler's files, which must not show in what it makes.
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

/// Why there is no compiler for wasm32.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// A program that is needed fails.
    #[error("failed to run {program}: {reason}")]
    Program {
        /// The program with its arguments.
        program: String,
        /// What it said.
        reason: String,
    },
    /// A file or folder cannot be used.
    #[error("failed to use {path}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no linker for wasm32.
    #[error(
        "no rust-lld in {0}, and the guests need it to be linked: install the complete Rust \
         toolchain (rustup does), or add the target with `rustup target add wasm32-unknown-unknown`"
    )]
    NoLinker(PathBuf),
    /// Neither the target nor Debian is there.
    #[error(
        "the Rust toolchain cannot compile for wasm32-unknown-unknown and this machine has no \
         apt-get to fetch one that can: run `rustup target add wasm32-unknown-unknown`"
    )]
    NotDebian,
    /// A package is not what the lock file says.
    #[error("{file} has SHA-256 {found}, but tests/src/guests/wasm-rustc.lock says {expected}")]
    Digest {
        /// The package's file.
        file: String,
        /// What the file has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// A package is not to be had.
    #[error(
        "the Debian mirror has not all packages of tests/src/guests/wasm-rustc.lock; run `rustup \
         target add wasm32-unknown-unknown`, or put the newer versions into that file ({0})"
    )]
    Gone(String),
}

/// The user's own toolchain where it can compile for wasm32, else the one in `cache`, which is
/// unpacked there first if it is missing.
pub fn find(cache: &Path) -> Result<WasmToolchain, ToolchainError> {
    let sysroot = PathBuf::from(output(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
    if has_target(&sysroot) {
        return Ok(WasmToolchain { own: None, sysroot });
    }
    let linker = linker(&sysroot)?;
    let key: String = hex(LOCK.as_bytes()).chars().take(12).collect();
    let home = cache.join(format!("wasm-rustc-1.85.1-{key}"));
    if !home.is_dir() {
        unpack(&home)?;
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
    let hosts = fs::read_dir(sysroot.join("lib/rustlib")).map_err(at(sysroot))?;
    hosts
        .filter_map(Result::ok)
        .map(|host| host.path().join("bin/rust-lld"))
        .find(|linker| linker.is_file())
        .ok_or_else(|| ToolchainError::NoLinker(sysroot.to_owned()))
}

/// Downloads, checks and unpacks the compiler into a folder beside `home`, which takes the name
/// `home` only when all of it is there.
fn unpack(home: &Path) -> Result<(), ToolchainError> {
    if Command::new("apt-get").arg("--version").output().is_err() {
        return Err(ToolchainError::NotDebian);
    }
    let partial = home.with_extension(format!("partial-{}", std::process::id()));
    let (apt, debs) = (partial.join("apt"), partial.join("debs"));
    for folder in ["lists/partial", "archives/partial"] {
        make_dir(&apt.join(folder))?;
    }
    make_dir(&debs)?;
    download(&apt, &debs)?;
    for [name, version, architecture, expected] in packages() {
        let file = format!("{name}_{}_{architecture}.deb", version.replace(':', "%3a"));
        let deb = debs.join(&file);
        let found = hex(&fs::read(&deb).map_err(at(&deb))?);
        if found != expected {
            let expected = expected.to_owned();
            return Err(ToolchainError::Digest {
                file,
                found,
                expected,
            });
        }
        output(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&partial))?;
    }
    for unused in [&apt, &debs, &partial.join("usr/share")] {
        fs::remove_dir_all(unused).map_err(at(unused))?;
    }
    write_wrapper(&partial, home)?;
    match fs::rename(&partial, home) {
        // Another process was faster; what it made is the same.
        Err(_) if home.is_dir() => fs::remove_dir_all(&partial).map_err(at(&partial)),
        renamed => renamed.map_err(at(home)),
    }
}

/// The compiler needs a newer C library than the machine may have, so it starts by its own loader.
fn write_wrapper(partial: &Path, home: &Path) -> Result<(), ToolchainError> {
    let libraries = home.join("usr/lib/x86_64-linux-gnu");
    let wrapper = partial.join("rustc");
    let script = format!(
        "#!/bin/sh\nexec '{libraries}/ld-linux-x86-64.so.2' --library-path '{libraries}' \
         '{home}/usr/bin/rustc' \"$@\"\n",
        libraries = libraries.display(),
        home = home.display(),
    );
    fs::write(&wrapper, script).map_err(at(&wrapper))?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).map_err(at(&wrapper))
}

/// Fetches the packages with an apt that has a state of its own, from the machine's own mirror.
fn download(apt: &Path, debs: &Path) -> Result<(), ToolchainError> {
    let mirror = output(
        Command::new("apt-get")
            .args(["indextargets", "--format", "$(REPO_URI) $(SUITE)"])
            .arg("Created-By: Packages"),
    )?;
    let mirror = mirror
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(_, suite)| !suite.contains('-'))
        .map(|(mirror, _)| mirror)
        .ok_or(ToolchainError::NotDebian)?;
    let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let (sources, status, config) = (
        apt.join("sources.list"),
        apt.join("status"),
        apt.join("apt.conf"),
    );
    let source = format!("deb [signed-by={keyring}] {mirror} trixie main\n");
    fs::write(&sources, source).map_err(at(&sources))?;
    fs::write(&status, "").map_err(at(&status))?;
    fs::write(&config, configuration(apt)).map_err(at(&config))?;
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .env("APT_CONFIG", &config)
            .current_dir(debs)
            .arg("-qq")
            .args(arguments);
        command
    };
    output(&mut apt_get(&["update"]))?;
    let wanted: Vec<_> = packages()
        .map(|[name, version, ..]| format!("{name}={version}"))
        .collect();
    output(apt_get(&["download"]).args(wanted))
        .map(drop)
        .map_err(|error| ToolchainError::Gone(error.to_string()))
}

fn configuration(apt: &Path) -> String {
    let apt = apt.display();
    format!(
        "Dir::State \"{apt}\"; Dir::State::lists \"lists\"; Dir::State::status \"{apt}/status\";\n\
         Dir::Cache \"{apt}\"; Dir::Cache::archives \"archives\";\n\
         Dir::Etc::sourcelist \"{apt}/sources.list\"; Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\"; Dir::Etc::preferencesparts \"/dev/null\";\n\
         APT::Architecture \"amd64\"; APT::Architectures {{ \"amd64\"; }};\n\
         APT::Sandbox::User \"root\"; Acquire::Languages \"none\"; Acquire::Retries \"3\";\n"
    )
}

/// Name, version, architecture and SHA-256 of each package.
fn packages() -> impl Iterator<Item = [&'static str; 4]> {
    LOCK.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(' ').collect::<Vec<_>>().try_into().ok())
}

fn make_dir(path: &Path) -> Result<(), ToolchainError> {
    fs::create_dir_all(path).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ToolchainError {
    let path = path.to_owned();
    move |source| ToolchainError::File { path, source }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// What a program prints; an error with what it said where it fails.
pub(super) fn output(command: &mut Command) -> Result<String, ToolchainError> {
    let program = format!("{command:?}");
    let failed = |reason: String| ToolchainError::Program {
        program: program.clone(),
        reason,
    };
    let output = interrupt::output(command).map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim())));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned_by_version_and_digest() {
        let lines = LOCK.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(packages().count(), lines);
        for [name, version, _, digest] in packages() {
            assert_eq!(digest.len(), 64, "{name}");
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{name}");
        }
    }
}
