//! Tools from Debian packages, unpacked into the cache.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{ToolsError, stored};
use crate::{
    debian::Pinned,
    files::{FileError, read, sha256_of},
    lock::Lock,
    progress::Progress,
    settings::Settings,
};

/// Debian release of the packages and images.
pub const SUITE: &str = "bookworm";

/// The folder into which the packages are unpacked, used as if it were `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    root: PathBuf,
}

impl Root {
    /// The root at this folder.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// A path within the root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The variables that make programs find the libraries and plug-ins beside them.
    pub fn env(&self) -> [(&'static str, PathBuf); 2] {
        let libraries = self.path("usr/lib/x86_64-linux-gnu");
        let xtables = libraries.join("xtables");
        [("LD_LIBRARY_PATH", libraries), ("XTABLES_LIBDIR", xtables)]
    }

    /// A command that runs a program of the packages.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path(program));
        command.envs(self.env());
        command
    }
}

/// Unpacks the packages if they are missing, and returns their folder.
pub fn ensure(settings: &Settings, progress: &Progress) -> Result<PathBuf, ToolsError> {
    let lock = read(&settings.tool_pins().join("debian.lock"))?;
    let pinned = Pinned::parse("tests/tools/debian.lock", SUITE, &lock)?;
    unpacked("debian", &lock, &pinned, settings, progress, |_, _| Ok(()))
}

/// Unpacks Debian's OCI registry if it is missing, and returns its program.
pub fn registry(settings: &Settings, progress: &Progress) -> Result<PathBuf, ToolsError> {
    let lock = "tests/tools/registry.lock";
    let root = of_one_package("registry", lock, settings, progress)?;
    Ok(root.join("usr/bin/docker-registry"))
}

/// Unpacks Debian's libfaketime if it is missing, and returns the library to preload.
pub fn faketime(settings: &Settings, progress: &Progress) -> Result<PathBuf, ToolsError> {
    let lock = "tests/tools/libfaketime.lock";
    let root = of_one_package("libfaketime", lock, settings, progress)?;
    Ok(root.join("usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"))
}

fn of_one_package(
    name: &str,
    lock: &'static str,
    settings: &Settings,
    progress: &Progress,
) -> Result<PathBuf, ToolsError> {
    let text = read(&settings.checkout.join(lock))?;
    let pinned = Pinned::parse(lock, SUITE, &text)?;
    // Tests of several processes may need it at the same time.
    let _lock = Lock::take(&settings.cache.join(format!("{name}.lock")))?;
    unpacked(name, &text, &pinned, settings, progress, |_, _| Ok(()))
}

/// The packages of a lock file, in a folder named after their digest. `finish` receives the folder
/// while it is made, and its final name.
pub fn unpacked(
    name: &str,
    lock: &str,
    pinned: &Pinned,
    settings: &Settings,
    progress: &Progress,
    finish: impl FnOnce(&Path, &Path) -> Result<(), FileError>,
) -> Result<PathBuf, ToolsError> {
    let inputs = sha256_of(lock);
    let dir = settings.cache.join(format!("{name}-{}", &inputs[..12]));
    if !stored::is_intact(&dir, &inputs) {
        let what = format!("unpacked {} Debian packages", pinned.count());
        let apt = settings.cache.join(match name {
            "debian" => "apt".to_owned(),
            other => format!("{other}.apt"),
        });
        stored::make(&dir, &inputs, |partial| {
            let root = partial.join("root");
            progress.run(what, || pinned.unpack(&apt, &root))?;
            Ok::<_, ToolsError>(finish(&root, &dir.join("root"))?)
        })?;
    }
    Ok(dir.join("root"))
}
