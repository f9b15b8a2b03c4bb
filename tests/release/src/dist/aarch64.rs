//! The tools that compile and link C for arm64 and run its programs on this machine: Debian
//! packages in the cache.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::debian::Pinned;
use cluster::files::{At, FileError, read, remove, write};
use cluster::lock::Lock;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::{ToolsError, debian};

/// The packages.
const LOCK: &str = "tests/tools/aarch64.lock";

/// The file names of the emulators of all processors, and of that for arm64.
const EMULATORS: &str = "qemu-";
const EMULATOR: &str = "qemu-aarch64-static";

/// The tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aarch64 {
    root: PathBuf,
}

impl Aarch64 {
    /// Unpacks the tools if they are missing.
    pub fn ensure(settings: &Settings, progress: &Progress) -> Result<Self, ToolsError> {
        let (lock, pinned) = pinned(settings)?;
        let _lock = Lock::take(&settings.cache.join("aarch64.lock"))?;
        let root = debian::unpacked("aarch64", &lock, &pinned, settings, progress, finish)?;
        Ok(Self { root })
    }

    /// The compiler of C, which links too.
    pub fn compiler(&self) -> PathBuf {
        self.root.join("cc")
    }

    /// The program that makes static libraries.
    pub fn archiver(&self) -> PathBuf {
        self.root.join("ar")
    }

    /// A command that runs a static program for arm64 here.
    pub fn emulated(&self, program: &Path) -> Command {
        let mut emulator = Command::new(self.root.join("usr/bin").join(EMULATOR));
        emulator.arg(program);
        emulator
    }
}

/// The version of the C library, without what Debian adds to it.
pub fn libc_version(settings: &Settings) -> Result<String, ToolsError> {
    let (_, pinned) = pinned(settings)?;
    let version = pinned.version("libc6-dev").unwrap_or_default();
    let upstream = version.rsplit_once('-').map_or(version, |(first, _)| first);
    Ok(upstream.to_owned())
}

fn pinned(settings: &Settings) -> Result<(String, Pinned), ToolsError> {
    let lock = read(&settings.tool_pins().join("aarch64.lock"))?;
    let pinned = Pinned::parse(LOCK, debian::SUITE, &lock)?;
    Ok((lock, pinned))
}

/// The compiler finds its own parts relative to its path. Options name the headers and libraries of
/// arm64, and the libraries that the compiler itself uses. The emulators of other processors are
/// removed.
fn finish(root: &Path, named: &Path) -> Result<(), FileError> {
    let bin = root.join("usr/bin");
    for entry in fs::read_dir(&bin).at("read", &bin)? {
        let path = entry.at("read", &bin)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(EMULATORS) && name != EMULATOR {
            remove(&path)?;
        }
    }
    remove(&root.join("usr/share"))?;
    let sysroot = format!("--sysroot='{}'", named.display());
    script(root, named, "cc", "aarch64-linux-gnu-gcc-12", &sysroot)?;
    script(root, named, "ar", "aarch64-linux-gnu-ar", "")
}

fn script(
    root: &Path,
    named: &Path,
    name: &str,
    program: &str,
    flag: &str,
) -> Result<(), FileError> {
    let path = root.join(name);
    let named = named.display();
    let script = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH='{named}/usr/lib/x86_64-linux-gnu' \
         exec '{named}/usr/bin/{program}' {flag} \"$@\"\n"
    );
    write(&path, script)?;
    fs::set_permissions(&path, Permissions::from_mode(0o755)).at("make executable", &path)
}
