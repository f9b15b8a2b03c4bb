//! Finds the operator's two processes on the nodes of the test cluster, to measure and kill them.

use std::fs;
use std::io;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One of the operator's processes, which runs in a container of one of our nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorProcess {
    /// Its number on this machine.
    pub pid: i32,
    /// Start time in clock ticks since the machine started. With the pid, it identifies the
    /// process.
    pub started: u64,
}

/// The process could not be found, read or killed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No process, or more than one.
    #[error("found {found} processes `{program}`, not one")]
    NotOne {
        /// The program, and `controller` or `vipu-proxy`.
        program: String,
        /// Number of processes.
        found: usize,
    },
    /// /proc could not be read.
    #[error("failed to read {path}")]
    Read {
        /// The file or folder.
        path: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A figure is missing.
    #[error("{path} has no {field}")]
    Field {
        /// The file.
        path: String,
        /// The field.
        field: &'static str,
    },
    /// The signal could not be sent.
    #[error("failed to kill process {pid}")]
    Kill {
        /// The process.
        pid: i32,
        /// The cause.
        #[source]
        source: nix::Error,
    },
}

impl OperatorProcess {
    /// Returns the one process of a subcommand that runs from the image's own path, in this Pod if
    /// one is named. Only the operator under test has that path on this machine: `/ipu-operator` of
    /// a container.
    pub fn find(subcommand: &str, pod: Option<&str>) -> Result<Self, ProcessError> {
        Self::of_program("/ipu-operator", Some(subcommand), pod)
    }

    /// The one process in the Pod of this name that runs a program from its image's own path.
    pub fn of_pod(program: &str, pod: &str) -> Result<Self, ProcessError> {
        Self::of_program(program, None, Some(pod))
    }

    fn of_program(
        program: &str,
        subcommand: Option<&str>,
        pod: Option<&str>,
    ) -> Result<Self, ProcessError> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").map_err(|source| read_error("/proc", source))? {
            let entry = entry.map_err(|source| read_error("/proc", source))?;
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            // A process that ends during the search is not the wanted one.
            let Ok(command) = fs::read(entry.path().join("cmdline")) else {
                continue;
            };
            let mut words = command.split(|byte| *byte == 0);
            let is_ours = words.next() == Some(program.as_bytes())
                && subcommand.is_none_or(|one| words.next() == Some(one.as_bytes()));
            if is_ours && pod.is_none_or(|pod| is_in(pid, pod)) {
                found.push(pid);
            }
        }
        match found.as_slice() {
            [pid] => Ok(Self {
                pid: *pid,
                started: start_of(*pid)?,
            }),
            _ => Err(ProcessError::NotOne {
                program: [Some(program), subcommand]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(" "),
                found: found.len(),
            }),
        }
    }

    /// Kills it without a graceful shutdown.
    pub fn kill(self) -> Result<(), ProcessError> {
        if start_of(self.pid)? != self.started {
            return Ok(());
        }
        kill(Pid::from_raw(self.pid), Signal::SIGKILL).map_err(|source| ProcessError::Kill {
            pid: self.pid,
            source,
        })
    }

    /// Resident memory in KiB.
    pub fn resident_kib(self) -> Result<u64, ProcessError> {
        kib_of("VmRSS", &format!("/proc/{}/status", self.pid))
    }

    /// Maximum resident memory so far, in KiB.
    pub fn most_resident_kib(self) -> Result<u64, ProcessError> {
        kib_of("VmHWM", &format!("/proc/{}/status", self.pid))
    }
}

fn kib_of(field: &'static str, path: &str) -> Result<u64, ProcessError> {
    read(path)?
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|figure| figure.parse().ok())
        .ok_or_else(|| ProcessError::Field {
            path: path.to_owned(),
            field,
        })
}

/// Whether a process runs in the Pod of this name, which is the hostname of its containers.
fn is_in(pid: i32, pod: &str) -> bool {
    let wanted = format!("HOSTNAME={pod}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    variables.any(|variable| variable == wanted.as_bytes())
}

/// Field 22 of /proc/PID/stat, counted after the command name, which may contain blanks.
fn start_of(pid: i32) -> Result<u64, ProcessError> {
    let path = format!("/proc/{pid}/stat");
    let text = read(&path)?;
    text.rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(19))
        .and_then(|figure| figure.parse().ok())
        .ok_or(ProcessError::Field {
            path,
            field: "start time",
        })
}

fn read(path: &str) -> Result<String, ProcessError> {
    fs::read_to_string(path).map_err(|source| read_error(path, source))
}

fn read_error(path: &str, source: io::Error) -> ProcessError {
    ProcessError::Read {
        path: path.to_owned(),
        source,
    }
}
