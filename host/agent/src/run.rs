//! `ipu-agent run`: becomes a command that a launcher with shared rights starts in this container.
//!
//! The admission policy allows such a launcher commands of the agent only: in a Pod without the
//! agent, which is no worker, nothing starts.

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Failure of the agent.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no command.
    #[error("the command must not be empty")]
    NoCommand,
    /// The command cannot be started.
    #[error("failed to start {0}")]
    Start(String, #[source] io::Error),
}

/// Replaces this process by the command.
pub fn exec(command: &[String]) -> Result<Infallible, RunError> {
    let (program, arguments) = command.split_first().ok_or(RunError::NoCommand)?;
    let error = Command::new(program).args(arguments).exec();
    Err(RunError::Start(program.clone(), error))
}
