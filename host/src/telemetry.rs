//! The log: lines for people or JSON for programs, on stderr.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object on one line, for programs.
    Json,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level is none.
    #[error(
        "failed to read the log level {level:?}; it is error, warn, info, debug or trace, or a list \
         such as info,ipu_operator=debug"
    )]
    Level {
        /// What was given.
        level: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// There is a log already.
    #[error("failed to start the log")]
    Start(#[source] TryInitError),
}

/// Starts the log of this process. `level` is a level, or a list of them by module.
pub fn start(format: LogFormat, level: &str) -> Result<(), TelemetryError> {
    let filter = EnvFilter::builder()
        .parse(level)
        .map_err(|source| TelemetryError::Level {
            level: level.to_owned(),
            source,
        })?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(false).finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    }
    .map_err(TelemetryError::Start)
}
