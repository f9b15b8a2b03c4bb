//! The log: lines for people or JSON for programs, on stderr, at a level that can be changed while the
//! process runs.

pub mod level;
#[cfg(test)]
mod tests;

use tracing::Dispatch;
use tracing::dispatcher::set_global_default;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::reload;

use self::level::LogLevel;

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object on one line, for programs.
    Json,
}

/// Why there is no log, or not at that level.
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
    /// A word in it is no level.
    #[error(
        "the log level {level:?} has the word {word:?}, which is no level; it is off, error, warn, info, debug \
         or trace, or a list such as info,ipu_operator=debug"
    )]
    Word {
        /// What was given.
        level: String,
        /// The word.
        word: String,
    },
    /// There is a log already.
    #[error("failed to start the log")]
    Start(#[source] tracing::dispatcher::SetGlobalDefaultError),
    /// The log is gone.
    #[error("failed to change the log level")]
    Change(#[source] reload::Error),
}

/// Starts the log of this process. `level` is a level, or a list of them by module; the answer changes
/// it.
pub fn start(format: LogFormat, level: &str) -> Result<LogLevel, TelemetryError> {
    let (log, level) = made(format, level, std::io::stderr)?;
    set_global_default(log).map_err(TelemetryError::Start)?;
    Ok(level)
}

/// A log to this writer.
fn made<W>(
    format: LogFormat,
    level: &str,
    writer: W,
) -> Result<(Dispatch, LogLevel), TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (lines, filter) = (fmt().with_writer(writer), filter(level)?);
    Ok(match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(false).with_env_filter(filter);
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            let level = LogLevel::new(level, move |filter| handle.reload(filter));
            (lines.finish().into(), level)
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_env_filter(filter);
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            let level = LogLevel::new(level, move |filter| handle.reload(filter));
            (lines.finish().into(), level)
        }
    })
}

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    // The library takes a word that is no level for the name of a target, and nothing else is heard then.
    let is_bare = |part: &&str| !part.contains(['=', '[']);
    let mut bare = level.split(',').map(str::trim).filter(is_bare);
    if let Some(word) = bare.find(|word| word.parse::<LevelFilter>().is_err()) {
        return Err(TelemetryError::Word {
            level: level.to_owned(),
            word: word.to_owned(),
        });
    }
    let filter = EnvFilter::builder().parse(level);
    filter.map_err(|source| TelemetryError::Level {
        level: level.to_owned(),
        source,
    })
}
