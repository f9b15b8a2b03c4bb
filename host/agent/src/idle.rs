//! `ipu-agent idle`: PID 1 of a container in which others start processes: the launcher in its
//! workers, a user in an interactive job.
//!
//! It reaps orphans, forwards the signal that stops the container to every other process of it, and
//! exits with 0 when they have ended. Without a signal it ends only after a given time.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, alarm, getpid};

/// Period of the check for remaining processes after the signal.
const POLL: Duration = Duration::from_millis(10);

/// Signals that stop a container: SIGTERM, or that of its image (`STOPSIGNAL`) or of its template
/// (`lifecycle.stopSignal`). A terminal sends some other signals for reasons of its own.
const STOP_SIGNALS: [Signal; 5] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Failure of the agent.
#[derive(Debug, thiserror::Error)]
pub enum IdleError {
    /// Signals cannot be blocked.
    #[error("failed to block signals")]
    Block(#[source] Errno),
    /// The agent cannot become the parent of orphans.
    #[error("failed to become the parent of orphaned processes")]
    Adopt(#[source] Errno),
    /// The agent cannot wait for the next signal.
    #[error("failed to wait for a signal")]
    Wait(#[source] Errno),
}

/// Waits for a signal to stop, and reaps orphans meanwhile. Then it forwards the signal and returns
/// when all other processes have ended, or after `patience`: the kernel kills the rest when PID 1
/// ends. After `ttl` seconds, if given, it does the same with SIGTERM.
///
/// `shares_processes`: the container has no PID namespace of its own, so that the signal goes to
/// the processes in its mount namespace.
///
/// Signals are blocked and received one by one, so no handler runs and no signal is lost. A blocked
/// signal reaches PID 1, although the kernel drops unhandled signals for it.
pub fn idle(patience: Duration, ttl: Option<u32>, shares_processes: bool) -> Result<(), IdleError> {
    let mut signals: SigSet = STOP_SIGNALS.into_iter().collect();
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGALRM);
    signals.thread_block().map_err(IdleError::Block)?;
    let others = Others::of_this_process(shares_processes)?;
    // The log shows that the agent waits on purpose.
    match ttl {
        None => println!("ipu-agent: waiting for commands of the launcher"),
        Some(seconds) => {
            println!(
                "ipu-agent: an interactive job of {seconds} s; use `kubectl exec` to work in it"
            );
            alarm::set(seconds);
        }
    }
    loop {
        match signals.wait().map_err(IdleError::Wait)? {
            signal if STOP_SIGNALS.contains(&signal) => {
                others.end(signal, patience);
                return Ok(());
            }
            Signal::SIGALRM => {
                println!("ipu-agent: the time of the interactive job is over");
                others.end(Signal::SIGTERM, patience);
                return Ok(());
            }
            _ => reap(),
        }
    }
}

/// The processes that receive the signal.
enum Others {
    /// As PID 1: all processes of the PID namespace, which is the container.
    Namespace,
    /// In a PID namespace of the host or of all containers of the Pod: the processes in the mount
    /// namespace of the agent, which is the container, but not the agent. `kubectl exec` starts
    /// processes that are no descendants of the agent.
    MountNamespace(Pid, PathBuf),
    /// Otherwise: only the descendants of the agent, because the other processes do not belong to
    /// it.
    Descendants(Pid),
}

impl Others {
    fn of_this_process(shares_processes: bool) -> Result<Self, IdleError> {
        let own = getpid();
        if own == Pid::from_raw(1) {
            return Ok(Self::Namespace);
        }
        prctl::set_child_subreaper(true).map_err(IdleError::Adopt)?;
        let namespace = mount_namespace(own.as_raw()).filter(|_| shares_processes);
        Ok(match namespace {
            Some(namespace) => Self::MountNamespace(own, namespace),
            None => Self::Descendants(own),
        })
    }

    /// Sends `signal` to all of them and waits at most `patience` until they have ended.
    fn end(&self, signal: Signal, patience: Duration) {
        let deadline = Instant::now() + patience;
        self.send(Some(signal));
        reap();
        while self.send(None) && Instant::now() < deadline {
            thread::sleep(POLL);
            reap();
        }
    }

    /// Sends `signal` to all of them. `None`: only checks. Returns whether there are any.
    fn send(&self, signal: Option<Signal>) -> bool {
        match self {
            Self::Namespace => kill(Pid::from_raw(-1), signal).is_ok(),
            Self::MountNamespace(own, namespace) => {
                let is_in_it = |pid: &i32| mount_namespace(*pid).as_ref() == Some(namespace);
                let found = processes().filter(|pid| *pid != own.as_raw());
                send_to(found.filter(is_in_it), signal)
            }
            Self::Descendants(own) => {
                send_to(descendants(own.as_raw(), &parents()).into_iter(), signal)
            }
        }
    }
}

/// Sends `signal` to processes. Returns whether there are any.
fn send_to(processes: impl Iterator<Item = i32>, signal: Option<Signal>) -> bool {
    let reached = processes.filter(|pid| kill(Pid::from_raw(*pid), signal).is_ok());
    reached.count() > 0
}

/// Returns the identity of the mount namespace of a process. `None`: it has ended, or belongs to
/// another user.
fn mount_namespace(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

/// Reaps every child that has ended.
fn reap() {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            // ECHILD: there are no children left.
            Err(_) => return,
        }
    }
}

/// All processes in `/proc`.
fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parents of all processes in `/proc`.
fn parents() -> HashMap<i32, i32> {
    processes()
        .filter_map(|pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parent(&stat)?))
        })
        .collect()
}

/// The parent in a line of `/proc/<pid>/stat`. The name of the program precedes it in brackets and
/// may contain brackets and spaces, so the line is parsed from its last bracket.
fn parent(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// All descendants of `ancestor`.
fn descendants(ancestor: i32, parents: &HashMap<i32, i32>) -> HashSet<i32> {
    let mut found = HashSet::from([ancestor]);
    loop {
        let more: Vec<i32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            found.remove(&ancestor);
            return found;
        }
        found.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::{descendants, parent};

    #[test]
    fn parent_is_read_after_the_last_bracket() {
        assert_eq!(parent("12 (sh) S 7 12 12 0 -1"), Some(7));
        assert_eq!(parent("12 (a) S 99 (b) R 3 1"), Some(3));
        assert_eq!(parent("12 (cut"), None);
        assert_eq!(parent(""), None);
    }

    #[test]
    fn descendants_are_found_at_every_depth() {
        let parents = HashMap::from([(2, 1), (3, 2), (4, 3), (5, 1), (6, 5)]);
        assert_eq!(descendants(2, &parents), HashSet::from([3, 4]));
        assert_eq!(descendants(6, &parents), HashSet::new());
    }
}
