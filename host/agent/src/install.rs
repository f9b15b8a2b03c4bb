//! `ipu-agent install`: copies the agent, and the files that mpirun reads, into a volume of other
//! containers.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exec::KnownPod;
use crate::names;

/// Name of the copy.
pub const FILE_NAME: &str = "ipu-agent";

/// Name of the script that mpirun calls instead of ssh.
pub const KUBEEXEC: &str = "kubeexec.sh";

/// Name of the list of workers.
pub const HOSTFILE: &str = "hostfile";

/// The workers of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Name of their job.
    pub job: String,
    /// Their number.
    pub count: u32,
    /// What is known of their Pods. `None`: the launcher can read them.
    pub known: Option<KnownPod>,
}

/// Failure of the installation.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The running executable cannot be found or read.
    #[error("failed to open the agent's own executable")]
    OpenSelf(#[source] io::Error),
    /// The copy, or another file, cannot be created.
    #[error("failed to write {0}; the folder must exist, be writable and have 10 MB of free space")]
    Write(PathBuf, #[source] io::Error),
    /// A file is complete but cannot be renamed.
    #[error("failed to move the new file to {0}")]
    Rename(PathBuf, #[source] io::Error),
    /// The copy cannot be started.
    #[error("failed to start the copy {0}; is its volume mounted with noexec?")]
    Start(PathBuf, #[source] io::Error),
    /// The copy fails.
    #[error("failed to check the copy {path}: it ended with {status}")]
    Check {
        /// The copy.
        path: PathBuf,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
}

/// Copies the running executable to `<dir>/ipu-agent` (mode 0755), checks that it runs there, and
/// writes the files for mpirun if there are `workers`.
///
/// A file gets its name only when it is complete. So a reader never reads half a file, and an init
/// container that was killed can run again.
pub fn install(dir: &Path, workers: Option<&Workers>) -> Result<PathBuf, InstallError> {
    // The path of `current_exe` may be in another mount namespace. The link itself always works.
    let own = File::open("/proc/self/exe").map_err(InstallError::OpenSelf)?;
    let path = put(own, dir, (FILE_NAME, 0o755))?;
    check(&path)?;
    if let Some(workers) = workers {
        // Open MPI passes the path of the script on to the workers. If it is not executable, Open
        // MPI fails with an unspecific exit code.
        let script = kubeexec(&path, workers);
        put(script.as_bytes(), dir, (KUBEEXEC, 0o555))?;
        put(hostfile(workers).as_bytes(), dir, (HOSTFILE, 0o444))?;
    }
    Ok(path)
}

/// The script that mpirun calls instead of ssh. Its first argument is the worker, by its name in
/// the hostfile or that of its Pod. The other arguments contain quotes of mpirun for a remote
/// shell, so the shell must receive them as a single string.
pub fn kubeexec(agent: &Path, workers: &Workers) -> String {
    let container = |known: &KnownPod| format!(" --container {}", known.container);
    let network = |known: &KnownPod| known.uses_host_network.then_some(" --host-network");
    let known = workers.known.as_ref();
    format!(
        "#!/bin/sh\n\
         # Called by mpirun instead of ssh: kubeexec.sh <worker> <command of a shell>...\n\
         POD=\"$1\"\n\
         shift\n\
         exec {agent} exec --job {job}{container}{network} \"$POD\" -- /bin/sh -c \"$*\"\n",
        agent = agent.display(),
        job = workers.job,
        container = known.map(container).unwrap_or_default(),
        network = known.and_then(network).unwrap_or_default(),
    )
}

/// The list of workers. One slot each: `-np <workers>` puts one rank on each GCD.
pub fn hostfile(workers: &Workers) -> String {
    (0..workers.count).fold(String::new(), |mut text, index| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} slots=1", names::host(&workers.job, index));
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
    // The umask, which depends on the image, restricts the mode at creation.
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
