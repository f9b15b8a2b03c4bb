//! A command that the agent holds back, and that replaces it.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{AGENT, Guarded, folder, wait_for};

/// The agent that holds this command of a shell back, in a folder with the file that releases it.
fn held(folder: &TempDir, script: &str) -> Guarded {
    let file = folder.path().join("start");
    fs::write(&file, "held").unwrap();
    let mut command = Command::new(AGENT);
    command.arg("hold").arg(file);
    command.args(["--", "sh", "-c", script, "argument-0", "$1 b"]);
    command.env("VARIABLE", "value").current_dir(folder.path());
    command.stdout(Stdio::piped());
    Guarded(command.spawn().unwrap())
}

/// The signals that end a held command, and the exit code for each.
const ENDING: [(Signal, i32); 6] = [
    (Signal::SIGTERM, 143),
    (Signal::SIGINT, 130),
    (Signal::SIGHUP, 129),
    (Signal::SIGQUIT, 131),
    (Signal::SIGUSR1, 138),
    (Signal::SIGUSR2, 140),
];

/// Waits until a process listens for all of them.
fn wait_for_handlers(pid: u32) {
    wait_for("the handlers of signals", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught?.trim(), 16).unwrap();
        let is_caught = |(signal, _): &(Signal, i32)| (caught >> (*signal as i32 - 1)) & 1 == 1;
        ENDING.iter().all(is_caught).then_some(())
    });
}

/// Releases a command as the kubelet does: the new file replaces the old one.
fn release(folder: &TempDir) {
    let new = folder.path().join("new");
    fs::write(&new, "2026-01-01T00:00:00Z").unwrap();
    fs::rename(new, folder.path().join("start")).unwrap();
}

#[test]
fn a_released_command_is_the_same_process_as_the_agent() {
    let folder = folder();
    let script =
        "echo $$ $0 $1 $VARIABLE; pwd; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; exit 7";
    let mut agent = held(&folder, script);
    let pid = agent.0.id();
    wait_for_handlers(pid);
    release(&folder);
    assert_eq!(agent.end().code(), Some(7));
    let mut said = String::new();
    let stdout = agent.0.stdout.as_mut().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    let (first, rest) = said.split_once('\n').unwrap();
    assert_eq!(first, format!("{pid} argument-0 $1 b value"));
    let (cwd, signals) = rest.split_once('\n').unwrap();
    assert_eq!(Path::new(cwd), folder.path().canonicalize().unwrap());
    // Those that the agent or its language ignores or handles are as at the start of a process.
    for line in signals.lines() {
        let (what, mask) = line.split_once(":\t").unwrap();
        let mask = u64::from_str_radix(mask, 16).unwrap();
        let handled = ENDING.map(|(signal, _)| signal);
        let handled = handled.into_iter().chain([Signal::SIGPIPE]);
        let left = handled.filter(|signal| (mask >> (*signal as i32 - 1)) & 1 == 1);
        assert_eq!(left.count(), 0, "{what}");
    }
}

#[test]
fn a_command_that_is_released_before_the_agent_starts_runs() {
    let folder = folder();
    release(&folder);
    let file = folder.path().join("start");
    let mut command = Command::new(AGENT);
    command.arg("hold").arg(file).args(["--", "true"]);
    assert!(Guarded(command.spawn().unwrap()).end().success());
}

#[test]
fn a_signal_ends_a_held_command_before_it_starts() {
    for (signal, code) in ENDING {
        let folder = folder();
        let mut agent = held(&folder, "echo started");
        wait_for_handlers(agent.0.id());
        let pid = i32::try_from(agent.0.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
        assert_eq!(agent.end().code(), Some(code));
        let mut said = String::new();
        let stdout = agent.0.stdout.as_mut().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
    }
}

#[test]
fn a_command_that_does_not_exist_ends_as_with_the_runtime() {
    let folder = folder();
    release(&folder);
    let log = folder.path().join("log");
    fs::write(&log, "").unwrap();
    let output = Command::new(AGENT)
        .args(["hold", "--termination-log"])
        .args([&log, &folder.path().join("start")])
        .args(["--", "no-such-program"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(128));
    let said = String::from_utf8(output.stderr).unwrap();
    let reason = said.strip_prefix("ipu-agent: ").unwrap();
    assert!(
        reason.starts_with("failed to start no-such-program: "),
        "{said}"
    );
    // The kubelet reads it, so that the status of the job names the program.
    assert_eq!(fs::read_to_string(log).unwrap(), reason.trim_end());
}

#[test]
fn without_a_file_of_the_kubelet_none_is_made() {
    let folder = folder();
    release(&folder);
    let log = folder.path().join("log");
    let output = Command::new(AGENT)
        .args(["hold", "--termination-log"])
        .args([&log, &folder.path().join("start")])
        .args(["--", "no-such-program"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(128));
    assert!(!log.exists());
}
