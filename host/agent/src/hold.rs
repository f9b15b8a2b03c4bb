//! `ipu-agent hold`: PID 1 of a launcher until all workers are Ready, and then the launcher's
//! command itself.
//!
//! The operator releases the command by an annotation of the Pod, which the kubelet writes into a
//! file of the container (`downwardAPI`): that needs neither a right nor a request, and cannot be
//! missed. The kubelet does so when it synchronizes the Pod, up to a second later. So a launcher
//! that may follow its own Pod does that too, and the first of both counts.

pub mod annotation;

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ipu_text::explain;

use self::annotation::OwnPod;
use crate::ending::Ending;

/// Content of the file while the command is held back.
pub const HELD: &str = "held";

/// Exit code for a command that cannot be started: that of a container whose runtime cannot start
/// its command.
pub const NOT_STARTED: u8 = 128;

/// Time between two looks at the file.
const POLL: Duration = Duration::from_millis(50);

/// Failure of the agent.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// There is no command.
    #[error("the command must not be empty")]
    NoCommand,
    /// The asynchronous runtime could not be started.
    #[error("failed to start the agent's runtime")]
    Runtime(#[source] io::Error),
    /// The agent cannot listen for signals.
    #[error("failed to listen for signals")]
    Signals(#[source] io::Error),
    /// The file cannot be read.
    #[error("failed to read {0}, by which the operator releases the command")]
    Read(PathBuf, #[source] io::Error),
    /// The command cannot be started.
    #[error("failed to start {0}")]
    Start(String, #[source] io::Error),
}

/// Waits until the file, or the annotation of this Pod, releases the command, then replaces this
/// process by it. The annotation is followed if there are [`annotation::FILES`] beside the file.
/// Returns an exit code only if the command never started: 128 + n if signal n ended the wait. The
/// kubelet shows the content of `termination_log` as the reason.
pub fn hold(file: &Path, command: &[String], termination_log: &Path) -> Result<u8, HoldError> {
    let (program, arguments) = command.split_first().ok_or(HoldError::NoCommand)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(HoldError::Runtime)?;
    let ended = runtime.block_on(async {
        let mut ending = Ending::listen().map_err(HoldError::Signals)?;
        tokio::select! {
            biased;
            code = ending.next() => Ok(Some(code)),
            released = release(file) => released.map(|()| None),
            () = announced(file) => Ok(None),
        }
    });
    if let Some(code) = ended? {
        return Ok(code);
    }
    // A thread may still look the API server's name up.
    runtime.shutdown_background();
    // `exec` resets the signals that this process handles or ignores, and its mask.
    let error = Command::new(program).args(arguments).exec();
    let error = HoldError::Start(program.clone(), error);
    let reason = explain(&error);
    eprintln!("ipu-agent: {reason}");
    // The log of the container has the reason in any case.
    let _ = write_reason(termination_log, &reason);
    Ok(NOT_STARTED)
}

/// Writes the reason into the file that the kubelet has made for it.
fn write_reason(termination_log: &Path, reason: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(termination_log)?;
    file.write_all(reason.as_bytes())
}

/// Awaits the release in the annotation of this Pod, if it may be followed.
async fn announced(file: &Path) {
    match file.parent().and_then(OwnPod::read) {
        Some(pod) => annotation::release(&pod).await,
        None => std::future::pending().await,
    }
}

async fn release(file: &Path) -> Result<(), HoldError> {
    loop {
        // While the kubelet replaces the file, there may be none for a moment.
        match fs::read_to_string(file) {
            Ok(text) if is_release(&text) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(HoldError::Read(file.to_owned(), error));
            }
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether a text releases the command. An annotation that somebody has removed does not.
fn is_release(text: &str) -> bool {
    !matches!(text.trim(), "" | HELD)
}

#[cfg(test)]
mod tests {
    use super::is_release;

    #[test]
    fn only_another_value_releases() {
        for (text, expected) in [
            ("held", false),
            ("held\n", false),
            ("", false),
            (" ", false),
            ("2026-01-01T00:00:00Z", true),
        ] {
            assert_eq!(is_release(text), expected, "{text:?}");
        }
    }
}
