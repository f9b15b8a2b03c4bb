//! `policy record`: records the calls of guests in a running operator.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::record::{LONGEST, Record};
use ipu_policies::call_recording::Notice;

use super::PolicyCliError;
use super::world::World;

#[derive(Args, Clone, Debug)]
pub(super) struct RecordArgs {
    /// Record the requests to this hook alone.
    #[arg(long)]
    hook: Option<World>,
    /// Record only the requests to the component of this digest. Without it, requests to shadow
    /// policies and to each policy of a chain are recorded too.
    #[arg(long)]
    digest: Option<String>,
    /// End after so many requests.
    #[arg(long, default_value_t = 1_000)]
    count: u64,
    /// End before there are more bytes than this.
    #[arg(long, default_value_t = 64 << 20)]
    bytes: u64,
    /// End after so many seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Socket at which the operator reports its requests.
    #[arg(long, default_value = "/var/cache/ipu-operator/requests.sock")]
    socket: PathBuf,
}

/// Reason for the end of the recording.
enum End {
    /// The limit `--count` is reached.
    Count,
    /// The next record would exceed `--bytes`.
    Bytes,
    /// The limit `--seconds` is reached.
    Time,
    /// The operator ended.
    Operator,
}

/// Counts of the recording.
#[derive(Default)]
struct Recorded {
    requests: u64,
    bytes: u64,
    missed: u64,
}

pub(super) fn run(args: &RecordArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let failed = |source| PolicyCliError::Socket(args.socket.clone(), source);
    let ends = Instant::now() + Duration::from_secs(args.seconds);
    let stream = UnixStream::connect(&args.socket).map_err(failed)?;
    let mut lines = BufReader::new(stream);
    let mut recorded = Recorded::default();
    let end = loop {
        if recorded.requests >= args.count {
            break End::Count;
        }
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break End::Time;
        }
        let waits = lines.get_ref().set_read_timeout(Some(left));
        let line = match waits.and_then(|()| next(&mut lines)) {
            Ok(line) if line.is_empty() => break End::Operator,
            Ok(line) => line,
            Err(error) if is_timeout(&error) => break End::Time,
            Err(error) => return Err(failed(error)),
        };
        match serde_json::from_str(&line) {
            Ok(Notice::Missed(missed)) => recorded.missed += missed,
            Ok(Notice::Busy(most)) => return Err(PolicyCliError::Busy(most)),
            Err(_) if !is_selected(args, &line) => {}
            Err(_) if recorded.bytes + line.len() as u64 > args.bytes => break End::Bytes,
            Err(_) => {
                out.write_all(line.as_bytes())?;
                out.flush()?;
                recorded.requests += 1;
                recorded.bytes += line.len() as u64;
            }
        }
    };
    eprintln!("{}", summary(&recorded, &end));
    Ok(())
}

/// Reads the next line with its newline; empty at the end.
fn next(lines: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    lines.by_ref().take(LONGEST).read_line(&mut line)?;
    Ok(line)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn is_selected(args: &RecordArgs, line: &str) -> bool {
    Record::parse(line).is_ok_and(|(record, _)| {
        let hook = args.hook.map(Hook::from);
        let digest = args.digest.as_deref();
        hook.is_none_or(|hook| hook == record.hook)
            && digest.is_none_or(|digest| digest == record.digest.as_str())
    })
}

/// Formats the summary at the end.
fn summary(recorded: &Recorded, end: &End) -> String {
    let why = match end {
        End::Count => "that is the number of --count",
        End::Bytes => "the next one would exceed --bytes",
        End::Time => "the time is over (--seconds)",
        End::Operator => "the operator has ended",
    };
    let Recorded {
        requests, missed, ..
    } = recorded;
    let missed = match missed {
        0 => String::new(),
        missed => format!("; {missed} were left out, since they came faster than they were read"),
    };
    format!("{requests} requests were recorded{missed}; {why}")
}
