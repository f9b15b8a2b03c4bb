//! `ipu-agent install`: puts a copy of the agent, and the files that mpirun reads, into a folder that other
//! containers mount.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::worker;

/// Name of the copy.
pub const FILE_NAME: &str = "ipu-agent";

/// Name of the script that mpirun calls in the place of ssh.
pub const KUBEEXEC: &str = "kubeexec.sh";

/// Name of the list of workers.
pub const HOSTFILE: &str = "hostfile";

/// The workers that a launcher reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Name of their job.
    pub job: String,
    /// How many there are.
    pub count: u32,
}

/// Why the agent could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The running executable cannot be found or read.
    #[error("failed to open the agent's own executable")]
    OpenSelf(#[source] io::Error),
    /// The copy, or another file, cannot be made.
    #[error("failed to write {0}; the folder must exist, be writable and have 10 MB of free space")]
    Write(PathBuf, #[source] io::Error),
    /// A file is complete but cannot be put in its place.
    #[error("failed to move the new file to {0}")]
    Rename(PathBuf, #[source] io::Error),
    /// The copy cannot be started.
    #[error("failed to start the copy {0}; is its volume mounted with noexec?")]
    Start(PathBuf, #[source] io::Error),
    /// The copy starts but does not answer as it should.
    #[error("failed to check the copy {path}: it ended with {status}")]
    Check {
        /// The copy.
        path: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
    },
}

/// Copies the running executable to `<dir>/ipu-agent` (mode 0755), makes sure that it runs there, and writes the files
/// for mpirun where there are `workers`.
///
/// A file appears under its name only when it is whole: a reader never meets half a file, and an
/// init container that was killed half-way can simply run again.
pub fn install(dir: &Path, workers: Option<&Workers>) -> Result<PathBuf, InstallError> {
    // The path of `current_exe` may be of another mount namespace; the link itself always works.
    let own = File::open("/proc/self/exe").map_err(InstallError::OpenSelf)?;
    let path = put(own, dir, (FILE_NAME, 0o755))?;
    check(&path)?;
    if let Some(workers) = workers {
        // Open MPI passes the path of the script on to the workers and gives up, with an exit code that
        // says nothing, where it is not executable.
        put(kubeexec(&path).as_bytes(), dir, (KUBEEXEC, 0o555))?;
        put(hostfile(workers).as_bytes(), dir, (HOSTFILE, 0o444))?;
    }
    Ok(path)
}

/// The first argument is the worker, untouched. The rest carries quotes that mpirun put there for
/// a remote shell, so it must reach one as a single string.
fn kubeexec(agent: &Path) -> String {
    format!(
        "#!/bin/sh\n\
         # Called by mpirun in the place of ssh: kubeexec.sh <worker Pod> <command of a shell>...\n\
         POD=\"$1\"\n\
         shift\n\
         exec {agent} exec \"$POD\" -- /bin/sh -c \"$*\"\n",
        agent = agent.display()
    )
}

/// One slot each: `-np <workers>` puts one rank on each GCD.
fn hostfile(workers: &Workers) -> String {
    (0..workers.count).fold(String::new(), |mut text, index| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} slots=1", worker(&workers.job, index));
        text
    })
}

fn put(content: impl Read, dir: &Path, (name, mode): (&str, u32)) -> Result<PathBuf, InstallError> {
    let path = dir.join(name);
    let unfinished = dir.join(format!(".{name}.new"));
    write(content, &unfinished, mode)
        .map_err(|source| InstallError::Write(unfinished.clone(), source))?;
    fs::rename(&unfinished, &path).map_err(|source| InstallError::Rename(path.clone(), source))?;
    Ok(path)
}

fn write(mut from: impl Read, to: &Path, mode: u32) -> io::Result<()> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut copy = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(to)?;
    io::copy(&mut from, &mut copy)?;
    // The mode given at opening is cut by the umask, which the image decides.
    copy.set_permissions(Permissions::from_mode(mode))?;
    copy.sync_all()
}

fn check(path: &Path) -> Result<(), InstallError> {
    let output = Command::new(path)
        .arg("--version")
        .output()
        .map_err(|source| InstallError::Start(path.to_owned(), source))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(InstallError::Check {
            path: path.to_owned(),
            status: output.status,
        })
    }
}
