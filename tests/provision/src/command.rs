//! Commands that run to their end: their output, or why they failed.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    io,
    process::{Command, ExitStatus, Output},
};

use crate::interrupt;

/// How many lines of a failed command an error shows.
const LAST_LINES: usize = 15;
/// The same for a long command, such as a compiler with several errors.
const LAST_LINES_OF_LONG: usize = 80;

/// Failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program could not be started.
    #[error("failed to start {command}")]
    Start {
        /// The command line.
        command: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The program ended with an error.
    #[error("{command} ended with {status}{printed}")]
    Failed {
        /// The command line.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// The last lines that it printed.
        printed: String,
    },
}

/// Runs `command` to its end without input, and returns its standard output.
pub fn output(command: &mut Command) -> Result<String, CommandError> {
    let line = describe(command);
    let output = interrupt::output(command).map_err(|source| CommandError::Start {
        command: line.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(CommandError::Failed {
        command: line,
        status: output.status,
        printed: printed(&output),
    })
}

/// Runs `command` to its end, and drops its output.
pub fn run(command: &mut Command) -> Result<(), CommandError> {
    output(command).map(drop)
}

/// Runs a long `command` to its end without input. Each line of its standard error is passed on
/// when it comes; a progress bar's states count as lines. If it fails, the error has the last
/// lines.
pub fn stream(command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), CommandError> {
    let described = describe(command);
    let mut last = VecDeque::new();
    let status = interrupt::stream(command, |printed| {
        line(printed);
        if last.len() == LAST_LINES_OF_LONG {
            last.pop_front();
        }
        last.push_back(printed.to_owned());
    });
    let status = status.map_err(|source| CommandError::Start {
        command: described.clone(),
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    let last: Vec<_> = last.iter().map(String::as_str).collect();
    Err(CommandError::Failed {
        command: described,
        status,
        printed: excerpt(&last, LAST_LINES_OF_LONG),
    })
}

/// The command as a user types it, cut to a readable length.
fn describe(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
    let mut line = format!("`{name}");
    for arg in command.get_args() {
        let arg = arg.to_string_lossy();
        if line.chars().count() + arg.chars().count() > 200 {
            line.push_str(" ...");
            break;
        }
        // Writing to a String cannot fail.
        let _ = write!(line, " {arg}");
    }
    line.push('`');
    line
}

/// The last lines of standard error, or of standard output if standard error is empty.
fn printed(output: &Output) -> String {
    let text = if output.stderr.iter().any(|byte| !byte.is_ascii_whitespace()) {
        &output.stderr
    } else {
        &output.stdout
    };
    let text = String::from_utf8_lossy(text);
    excerpt(&text.lines().collect::<Vec<_>>(), LAST_LINES)
}

/// The last `count` of these lines, below each other.
fn excerpt(lines: &[&str], count: usize) -> String {
    let is_text = |line: &&&str| !line.trim().is_empty();
    let lines: Vec<_> = lines.iter().filter(is_text).collect();
    let mut printed = String::new();
    for line in &lines[lines.len().saturating_sub(count)..] {
        printed.push_str("\n    ");
        printed.extend(line.chars().take(500));
    }
    if printed.is_empty() {
        printed.push_str(" and printed nothing");
    } else {
        printed.insert(0, ':');
    }
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_command_and_its_last_words() {
        let error = run(Command::new("/bin/sh").args(["-c", "echo one; echo two >&2; exit 3"]))
            .expect_err("exit status 3");
        let text = error.to_string();
        assert!(text.starts_with("`sh -c "), "{text}");
        assert!(text.contains("exit status: 3"), "{text}");
        assert!(text.ends_with("two"), "{text}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("/nonexistent/tool")).expect_err("no such program");
        assert_eq!(error.to_string(), "failed to start `tool`");
    }
}
