//! Daemons: started detached, and identified by process id and start time.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::files::{At, FileError, read, remove, write_json};

/// Every daemon of a run, and each process that it starts, has this variable with the run folder as
/// its value. It identifies also a process that is not recorded yet.
pub const MARK: &str = "IPU_OPERATOR_HARNESS";

/// A process that cannot be mistaken for another one that got the same id later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Start time, in clock ticks since the machine started.
    pub start: u64,
}

impl Process {
    /// The live process with this id.
    pub fn find(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        (stat.state != 'Z').then_some(Self {
            pid,
            start: stat.start,
        })
    }

    /// Whether it still runs. A zombie does not run: the machine's first process may reap it late.
    pub fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Its first child. For `unshare`, this is the first process of the new namespaces.
    pub fn first_child(self) -> Option<Self> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid);
        let children = fs::read_to_string(path).ok()?;
        let pid = children.split_whitespace().next()?.parse().ok()?;
        Self::find(pid)
    }

    /// Ends it at once and waits until it is gone, at most for `limit`. Whether it is gone.
    pub fn end(self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.is_alive() {
            // It may have ended between the check and the signal.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// The kernel's data about a process.
struct Stat {
    state: char,
    start: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field is the program's name in parentheses, and may contain spaces and
    /// parentheses. The state is the first field after it, and the start time the twentieth.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self {
            state,
            start: started,
        })
    }
}

/// A program to run in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Its name in messages and in the names of its files.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables beside the usual ones.
    pub env: Vec<(String, String)>,
}

impl Daemon {
    /// A daemon of this name, program and arguments.
    pub fn new<A: Into<String>>(
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let mut command = vec![program.to_string_lossy().into_owned()];
        command.extend(args.into_iter().map(Into::into));
        Self {
            name: name.to_owned(),
            command,
            env: Vec::new(),
        }
    }
}

/// The daemons of one run, recorded in a folder.
#[derive(Debug, Clone)]
pub struct Daemons {
    run: PathBuf,
}

impl Daemons {
    /// The daemons of the run in this folder.
    pub fn of(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
        }
    }

    /// Returns the path of a daemon's log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.run.join("logs").join(format!("{name}.log"))
    }

    /// Starts a daemon in its own session, so that it outlives this process and its terminal.
    pub fn start(&self, daemon: &Daemon) -> Result<Process, FileError> {
        let log_path = self.log(&daemon.name);
        let log = File::create(&log_path).at("write", &log_path)?;
        let errors = log.try_clone().at("write", &log_path)?;
        let child = Command::new("setsid")
            .args(&daemon.command)
            .env(MARK, &self.run)
            .envs(daemon.env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .current_dir(&self.run)
            .spawn()
            .at("start", Path::new(&daemon.command[0]))?;
        let process = i32::try_from(child.id())
            .ok()
            .and_then(Process::find)
            .ok_or_else(|| io::Error::other("it ended at once"))
            .at("start", Path::new(&daemon.command[0]))?;
        write_json(&self.record(&daemon.name), &process)?;
        Ok(process)
    }

    /// The daemon of this name. `None`: it does not run.
    pub fn alive(&self, name: &str) -> Option<Process> {
        let text = read(&self.record(name)).ok()?;
        let process: Process = serde_json::from_str(&text).ok()?;
        process.is_alive().then_some(process)
    }

    /// Forgets every daemon.
    pub fn forget(&self) -> Result<(), FileError> {
        remove(&self.run.join("processes"))
    }

    /// Every live process that carries the mark of this run, except our own.
    pub fn marked(&self) -> Vec<Process> {
        let mark = format!("{MARK}={}", self.run.display());
        let own = std::process::id().to_string();
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| *name != own)
            .filter_map(|name| name.parse().ok())
            .filter(|pid| carries(*pid, &mark))
            .filter_map(Process::find)
            .collect()
    }

    fn record(&self, name: &str) -> PathBuf {
        self.run.join("processes").join(name)
    }
}

/// Whether the environment of a process holds this entry.
fn carries(pid: i32, entry: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|b| *b == 0).any(|e| e == entry.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 99";
        let stat = Stat::parse(stat).unwrap();
        assert_eq!((stat.state, stat.start), ('S', 4242));
        assert!(Stat::parse("garbage").is_none());
    }

    #[test]
    fn a_daemon_is_found_by_name_and_by_mark_until_it_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        for part in ["logs", "processes"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        let daemons = Daemons::of(dir.path());
        let daemon = Daemon::new("sleeper", Path::new("sleep"), ["1000"]);
        let process = daemons.start(&daemon).unwrap();
        assert_eq!(daemons.alive("sleeper"), Some(process));
        let deadline = Instant::now() + Duration::from_secs(20);
        while daemons.marked() != [process] {
            assert!(Instant::now() < deadline, "the mark never appeared");
        }
        assert!(process.end(Duration::from_secs(20)));
        assert_eq!(daemons.alive("sleeper"), None);
        assert_eq!(daemons.marked(), []);
    }

    #[test]
    fn another_process_with_the_same_id_is_not_ours() {
        let own = i32::try_from(std::process::id()).unwrap();
        let process = Process::find(own).unwrap();
        let earlier = Process {
            start: process.start - 1,
            ..process
        };
        assert!(process.is_alive());
        assert!(!earlier.is_alive());
    }
}
