//! The log: lines for users or JSON for programs, on stderr, at a level that can change while the
//! process runs.

pub mod level;
#[cfg(test)]
mod tests;
pub mod trace;

use std::env;
use std::path::PathBuf;

use clap::Args;
use tracing::dispatcher::set_global_default;
use tracing::{Dispatch, Level, Metadata};
use tracing_subscriber::filter::{LevelFilter, ParseError, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use self::level::LogLevel;
use self::trace::{Destination, TraceError, TraceOptions, Traces};

/// Prefixes of the operator's packages, which identify its log lines.
const PACKAGES: [&str; 2] = ["ipu_", "vipu_client"];

/// Name of all these packages in a log level.
const OPERATOR: &str = "ipu_operator";

/// Options of the log.
#[derive(Clone, Debug, Args)]
pub struct LogArguments {
    /// Format of the log.
    #[arg(
        long,
        env = "IPU_OPERATOR_LOG_FORMAT",
        value_enum,
        default_value = "json"
    )]
    pub log_format: LogFormat,
    /// Level of the log, or a list such as info,ipu_operator=debug.
    #[arg(long, env = "IPU_OPERATOR_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
    /// Address of the OTLP collector (gRPC), as http://<host>:<port> or https://<host>:<port>. If
    /// empty, the standard variables decide (OTEL_EXPORTER_OTLP_ENDPOINT and others); without them,
    /// no traces are sent.
    #[arg(long, env = "IPU_OPERATOR_TRACES_ENDPOINT")]
    pub traces_endpoint: Option<String>,
    /// Folder with ca.crt, the CA of the collector, and tls.crt and tls.key where it requires a
    /// client certificate.
    #[arg(long, env = "IPU_OPERATOR_TRACES_TLS_DIR")]
    pub traces_tls_dir: Option<PathBuf>,
}

impl LogArguments {
    /// Starts to send the traces of this process, if the options or the standard variables name a
    /// collector.
    pub fn traces(&self, process: &'static str) -> Result<Option<Traces>, TraceError> {
        let options = TraceOptions {
            endpoint: self.traces_endpoint.as_deref(),
            tls_dir: self.traces_tls_dir.as_deref(),
        };
        let destination = Destination::find(&options, |name| env::var(name).ok())?;
        let started = destination.map(|destination| trace::start(&destination, process));
        started.transpose()
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Plain text, for users.
    Text,
    /// A JSON object on one line, for programs.
    Json,
}

/// Failure to start the log, or to change its level.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level is not valid.
    #[error(
        "failed to read the log level {0:?}; it is error, warn, info, debug or trace, or a list \
         such as info,ipu_operator=debug"
    )]
    Level(String, #[source] ParseError),
    /// A word in it is not a level.
    #[error(
        "the log level {level:?} has the word {word:?}, which is no level; it is off, error, warn, info, debug \
         or trace, or a list such as info,ipu_operator=debug"
    )]
    Word {
        /// The given value.
        level: String,
        /// The word.
        word: String,
    },
    /// There is already a log.
    #[error("failed to start the log")]
    Start(#[source] tracing::dispatcher::SetGlobalDefaultError),
    /// The log has ended.
    #[error("failed to change the log level")]
    Change(#[source] reload::Error),
}

/// Starts the log of this process. `level` is a level, or a list of levels by module. The returned
/// value changes it. The log lines are also sent to the `traces`, if there are any.
pub fn start(
    format: LogFormat,
    level: &str,
    traces: Option<&Traces>,
) -> Result<LogLevel, TelemetryError> {
    let (log, level) = made(format, level, std::io::stderr, traces)?;
    set_global_default(log).map_err(TelemetryError::Start)?;
    Ok(level)
}

/// A log to this writer.
fn made<W>(
    format: LogFormat,
    level: &str,
    writer: W,
    traces: Option<&Traces>,
) -> Result<(Dispatch, LogLevel), TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(level)?);
    let lines = fmt::layer().with_writer(writer);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let traced = traces.map(|traces| {
        let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer());
        layer.with_filter(filter_fn(is_traced))
    });
    let log = Registry::default()
        .with(lines.with_filter(filter))
        .with(traced);
    let level = LogLevel::new(level, move |filter| handle.reload(filter));
    Ok((log.into(), level))
}

/// Selects every span of this program, and the lines at the default level.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    let is_ours = PACKAGES
        .iter()
        .any(|start| metadata.target().starts_with(start));
    is_ours && (metadata.is_span() || *metadata.level() <= Level::INFO)
}

/// Replaces each level for the operator by levels for its packages.
fn of_packages(level: &str) -> String {
    let parts = level.split(',').map(str::trim);
    let parts = parts.flat_map(|part| match part.strip_prefix(OPERATOR) {
        Some(level) if level.starts_with('=') => {
            PACKAGES.map(|start| format!("{start}{level}")).to_vec()
        }
        _ => vec![part.to_owned()],
    });
    parts.collect::<Vec<_>>().join(",")
}

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    // The library treats a word that is not a level as the name of a target, and then logs nothing
    // else.
    let is_bare = |part: &&str| !part.contains(['=', '[']);
    let mut bare = level.split(',').map(str::trim).filter(is_bare);
    if let Some(word) = bare.find(|word| word.parse::<LevelFilter>().is_err()) {
        return Err(TelemetryError::Word {
            level: level.to_owned(),
            word: word.to_owned(),
        });
    }
    let filter = EnvFilter::builder().parse(of_packages(level));
    filter.map_err(|source| TelemetryError::Level(level.to_owned(), source))
}
