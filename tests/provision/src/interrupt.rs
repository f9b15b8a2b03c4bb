//! Ctrl-C and SIGTERM. The first signal stops the work, so that the harness can clean up. The
//! second ends the harness.
//!
//! While the harness watches for signals, its commands run in their own process groups. So Ctrl-C
//! on the terminal reaches only the harness: it forwards the signal to a build, but not to the
//! commands that end the cluster.

use std::{
    io::{self, BufReader, IsTerminal, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::LazyLock,
    thread,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit status of an interrupted harness, as shells define it.
pub const STATUS: u8 = 130;

/// Effect of the first signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// It stops the work of [`unless`], and the caller ends the cluster.
    EndCluster,
    /// It ends the harness, which prints this text.
    Leave(&'static str),
}

/// Effect of signals at this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The harness does not watch: signals end the process, and the commands on its terminal.
    Unwatched,
    /// Signals stop the work and its commands.
    Working,
    /// The cluster is being ended. The first signal does not interrupt this.
    Ending,
}

/// The commands that run now, by the ids of their process groups.
struct Commands {
    phase: Phase,
    groups: Vec<u32>,
}

static STOP: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);
static COMMANDS: Mutex<Commands> = Mutex::new(Commands {
    phase: Phase::Unwatched,
    groups: Vec::new(),
});

/// Begins to watch for Ctrl-C and SIGTERM.
pub fn watch(first: First) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = {
        let _in_runtime = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate()].map(signal)
    };
    let [interrupts, terminations] = signals;
    let (mut interrupts, mut terminations) = (interrupts?, terminations?);
    commands().phase = Phase::Working;
    // Work may block every other thread.
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(next(&mut interrupts, &mut terminations));
            stop(first);
            runtime.block_on(next(&mut interrupts, &mut terminations));
            leave(
                "stopped at once; `make down` removes the rest of the cluster",
                Signal::SIGKILL,
            )
        })
        .map(drop)
}

/// Whether a signal came.
pub fn came() -> bool {
    STOP.is_cancelled()
}

/// Marks the beginning of the cluster's end: from now on, commands run to their end despite
/// signals.
pub fn ending() {
    let mut commands = commands();
    if commands.phase == Phase::Working {
        commands.phase = Phase::Ending;
    }
}

/// Ends the commands that run now, because what they make is no longer needed.
pub fn end_commands() {
    commands().signal(Signal::SIGTERM);
}

/// Does the work until it is done. Returns `None` if a signal comes earlier.
pub async fn unless<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = STOP.cancelled() => None,
        // Work that blocks notices a signal only because its commands fail.
        done = work => (!came()).then_some(done),
    }
}

/// Whether the signals of the terminal must not reach commands.
pub fn is_watched() -> bool {
    commands().phase != Phase::Unwatched
}

/// Runs a command to its end without input. After a signal that stops the work, it refuses the
/// command.
pub fn output(command: &mut Command) -> io::Result<Output> {
    command.stdout(Stdio::piped());
    let child = begin(command)?;
    let id = child.id();
    let output = child.wait_with_output();
    forget(id);
    output
}

/// The same, for a long command: each part of its standard error is passed on when it comes. A part
/// ends with a line feed or, as for progress bars, a carriage return. Standard output is dropped.
pub fn stream(command: &mut Command, mut part: impl FnMut(&str)) -> io::Result<ExitStatus> {
    command.stdout(Stdio::null());
    let mut child = begin(command)?;
    let id = child.id();
    let printed = child.stderr.take().map(BufReader::new);
    let mut text = Vec::new();
    let read = printed
        .into_iter()
        .flat_map(Read::bytes)
        .try_for_each(|byte| {
            match byte? {
                b'\n' | b'\r' => {
                    part(&String::from_utf8_lossy(&text));
                    text.clear();
                }
                byte => text.push(byte),
            }
            Ok(())
        });
    let status = child.wait();
    forget(id);
    read.and(status)
}

/// Starts a command in a group of its own, and records it.
fn begin(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    // No signal may stop the commands before the new one is recorded.
    let mut commands = commands();
    match commands.phase {
        Phase::Unwatched => {}
        Phase::Working if came() => {
            return Err(io::Error::other("the harness was interrupted"));
        }
        Phase::Working | Phase::Ending => {
            command.process_group(0);
        }
    }
    let child = command.spawn()?;
    commands.groups.push(child.id());
    Ok(child)
}

fn forget(id: u32) {
    commands().groups.retain(|group| *group != id);
}

fn commands() -> MutexGuard<'static, Commands> {
    COMMANDS.lock()
}

impl Commands {
    fn signal(&self, signal: Signal) {
        if self.phase == Phase::Unwatched {
            return;
        }
        for group in self.groups.iter().filter_map(|id| i32::try_from(*id).ok()) {
            // It may have ended by itself.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }
}

async fn next(interrupts: &mut unix::Signal, terminations: &mut unix::Signal) {
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminations.recv() => {}
    }
}

/// Applies the effect of the first signal.
fn stop(first: First) {
    let hint = match first {
        First::EndCluster => "ending the cluster; a second Ctrl-C leaves it as it is",
        First::Leave(hint) => leave(hint, Signal::SIGTERM),
    };
    let commands = commands();
    STOP.cancel();
    if commands.phase == Phase::Working {
        commands.signal(Signal::SIGTERM);
    }
    drop(commands);
    say(hint);
}

fn leave(hint: &str, signal: Signal) -> ! {
    commands().signal(signal);
    say(hint);
    std::process::exit(i32::from(STATUS))
}

fn say(hint: &str) {
    // On a terminal, the line now has the `^C`, and perhaps a step.
    let gap = if io::stderr().is_terminal() { "\n" } else { "" };
    eprintln!("{gap}harness: interrupted: {hint}");
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use nix::sys::signal::kill;

    use super::*;

    /// The variable that makes the test program work until a signal comes.
    const AS_CHILD: &str = "IPU_OPERATOR_TEST_INTERRUPTED";

    fn work_until_a_signal() -> ! {
        watch(First::EndCluster).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let done = runtime.block_on(unless(async {
            println!("working");
            output(Command::new("sleep").arg("1000"))
        }));
        ending();
        let ended = output(&mut Command::new("true")).unwrap();
        println!("stopped: {}, ended: {}", done.is_none(), ended.status);
        std::process::exit(i32::from(STATUS))
    }

    #[test]
    fn the_first_signal_stops_a_command_and_lets_the_cluster_be_ended() {
        const NAME: &str = "the_first_signal_stops_a_command_and_lets_the_cluster_be_ended";
        if std::env::var_os(AS_CHILD).is_some() {
            work_until_a_signal();
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", NAME])
            .env(AS_CHILD, "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("working") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it never worked");
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            rest.contains("stopped: true, ended: exit status: 0"),
            "{rest}"
        );
        assert_eq!(output.status.code(), Some(i32::from(STATUS)));
        let hint = "harness: interrupted: ending the cluster; a second Ctrl-C leaves it as it is\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), hint);
    }

    #[test]
    fn a_command_gives_what_it_printed_and_is_forgotten() {
        let mut echo = Command::new("/bin/sh");
        let output = output(echo.args(["-c", "echo one; echo two >&2"])).unwrap();
        assert_eq!(output.stdout, b"one\n");
        assert_eq!(output.stderr, b"two\n");
        assert!(!is_watched());
        assert!(output.status.success());
    }
}
