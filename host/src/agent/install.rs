//! `ipu-agent install`: puts a copy of the agent into a folder that other containers mount.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the copy.
pub const FILE_NAME: &str = "ipu-agent";

/// Why the agent could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The running executable cannot be found or read.
    #[error("failed to open the agent's own executable")]
    OpenSelf(#[source] io::Error),
    /// The copy cannot be made.
    #[error("failed to write {path}; the folder must exist, be writable and have 10 MB of room")]
    Write {
        /// The file being written.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The copy is complete but cannot be put in its place.
    #[error("failed to move the copy to {path}")]
    Rename {
        /// The final place.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The copy cannot be started.
    #[error("failed to start the copy {path}; is its volume mounted with noexec?")]
    Start {
        /// The copy.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The copy starts but does not answer as it should.
    #[error("failed to check the copy {path}: it ended with {status}")]
    Check {
        /// The copy.
        path: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
    },
}

/// Copies the running executable to `<dir>/ipu-agent` (mode 0755) and makes sure that it runs there.
///
/// The copy appears under its name only when it is whole: a reader never meets half a file, and an
/// init container that was killed half-way can simply run again.
pub fn install(dir: &Path) -> Result<PathBuf, InstallError> {
    let path = dir.join(FILE_NAME);
    let unfinished = dir.join(format!(".{FILE_NAME}.new"));
    // The path of `current_exe` may be of another mount namespace; the link itself always works.
    let own = File::open("/proc/self/exe").map_err(InstallError::OpenSelf)?;
    write(own, &unfinished).map_err(|source| InstallError::Write {
        path: unfinished.clone(),
        source,
    })?;
    fs::rename(&unfinished, &path).map_err(|source| InstallError::Rename {
        path: path.clone(),
        source,
    })?;
    check(&path)?;
    Ok(path)
}

fn write(mut from: File, to: &Path) -> io::Result<()> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut copy = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(to)?;
    io::copy(&mut from, &mut copy)?;
    // The mode given at opening is cut by the umask, which the image decides.
    copy.set_permissions(Permissions::from_mode(0o755))?;
    copy.sync_all()
}

fn check(path: &Path) -> Result<(), InstallError> {
    let output = Command::new(path)
        .arg("--version")
        .output()
        .map_err(|source| InstallError::Start {
            path: path.to_owned(),
            source,
        })?;
    if output.status.success() {
        Ok(())
    } else {
        Err(InstallError::Check {
            path: path.to_owned(),
            status: output.status,
        })
    }
}
