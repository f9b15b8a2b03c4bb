//! `policy bench`: measures calls of a component and of another one, by default the built-in one.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::model::built_in_file;
use ipu_guest_host::policy_request::PolicyRequest;
use ipu_guest_host::{Budget, CallResult, Limits, OfflineGuest};

use super::request::read_request;
use super::settings::settings;
use super::{PolicyCliError, no_answer, no_policy};

/// Calls before the measured ones, to warm up memory and caches.
const WARM_UP: u32 = 32;

#[derive(Args, Clone, Debug)]
pub(super) struct BenchArgs {
    /// The component, such as my-placement.wasm.
    file: PathBuf,
    /// The component to compare with; by default the built-in one of the same world.
    #[arg(long)]
    against: Option<PathBuf>,
    /// Folder of the built-in components.
    #[arg(long, env = "IPU_OPERATOR_GUESTS_DIR", default_value = "/guests")]
    guests_dir: PathBuf,
    /// File with the request, as of `policy run`; by default the sample request of `policy check`.
    #[arg(long)]
    request: Option<PathBuf>,
    /// Settings for both, as a JSON object.
    #[arg(long, default_value = "{}", value_parser = settings)]
    settings: String,
    /// Calls of each component that are measured.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
}

/// Measurements of one component.
struct Measurements {
    name: String,
    p50: Duration,
    p99: Duration,
    /// Most memory of an instance, in bytes.
    memory: usize,
    fuel: u64,
}

pub(super) fn run(args: &BenchArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let first = open(&args.file, None)?;
    let request = read_request(&first, args.request.as_deref())?;
    let hook = first.hook();
    let built_in = args.guests_dir.join(built_in_file(hook));
    let other = match &args.against {
        Some(file) => Some(file),
        None => Some(&built_in).filter(|file| file.is_file()),
    };
    let mut subjects = vec![(&args.file, first)];
    if let Some(file) = other {
        subjects.push((file, open(file, Some(hook))?));
    }
    let measurements = measure(args, &subjects, &request)?;
    out.write_all(table(&measurements, args.calls).as_bytes())?;
    if other.is_none() {
        writeln!(
            out,
            "There is no built-in component {} to compare with; name one with --against.",
            built_in.display()
        )?;
    }
    Ok(())
}

fn open(file: &Path, hook: Option<Hook>) -> Result<OfflineGuest, PolicyCliError> {
    OfflineGuest::open(file, hook, Limits::for_authoring(), Budget::Time).map_err(no_policy(file))
}

/// Calls the components in turns, so that other load on the machine affects all alike.
fn measure(
    args: &BenchArgs,
    subjects: &[(&PathBuf, OfflineGuest)],
    request: &PolicyRequest,
) -> Result<Vec<Measurements>, PolicyCliError> {
    let calls: Vec<_> = subjects
        .iter()
        .map(|(file, guest)| guest.caller(&args.settings).map_err(no_answer(file)))
        .collect::<Result<_, _>>()?;
    let mut times = vec![Vec::new(); subjects.len()];
    let mut memory = vec![0; subjects.len()];
    for call in 0..args.calls.saturating_add(WARM_UP) {
        for (at, (file, _)) in subjects.iter().enumerate() {
            let result = require_answer(calls[at](request), file)?;
            memory[at] = result.memory.max(memory[at]);
            if call >= WARM_UP {
                times[at].push(result.time);
            }
        }
    }
    let mut measurements = Vec::new();
    for (at, (file, guest)) in subjects.iter().enumerate() {
        times[at].sort_unstable();
        measurements.push(Measurements {
            name: file.display().to_string(),
            p50: percentile(&times[at], 50),
            p99: percentile(&times[at], 99),
            memory: memory[at],
            fuel: fuel(file, guest, args, request)?,
        });
    }
    Ok(measurements)
}

/// Returns the fuel of one call. A separate engine counts it, because counting is slow.
fn fuel(
    file: &Path,
    guest: &OfflineGuest,
    args: &BenchArgs,
    request: &PolicyRequest,
) -> Result<u64, PolicyCliError> {
    let metered = OfflineGuest::open(
        file,
        Some(guest.hook()),
        Limits::for_authoring(),
        Budget::Fuel(u64::MAX),
    )
    .map_err(no_policy(file))?;
    let result = require_answer(metered.call(&args.settings, request), file)?;
    Ok(result.fuel.unwrap_or_default())
}

/// Ends the benchmark if a call failed.
fn require_answer(result: CallResult, file: &Path) -> Result<CallResult, PolicyCliError> {
    match result.answer {
        Err(source) => Err(no_answer(file)(source)),
        Ok(_) => Ok(result),
    }
}

/// Returns a percentile of sorted values; zero if there are none.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    let at = rank.saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

fn table(measurements: &[Measurements], calls: u32) -> String {
    let width = measurements
        .iter()
        .map(|one| one.name.chars().count())
        .max();
    let width = width.unwrap_or_default().max("the first beside it".len());
    let mut text = format!(
        "{:width$}  {:>10}  {:>10}  {:>10}  {:>12}\n",
        format!("{calls} calls"),
        "p50",
        "p99",
        "memory",
        "fuel",
    );
    for one in measurements {
        let _ = writeln!(
            text,
            "{:width$}  {:>7.1} µs  {:>7.1} µs  {:>6} KiB  {:>12}",
            one.name,
            one.p50.as_secs_f64() * 1e6,
            one.p99.as_secs_f64() * 1e6,
            one.memory >> 10,
            one.fuel,
        );
    }
    if let [first, other] = measurements {
        let times = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64().max(1e-9);
        let _ = writeln!(
            text,
            "{:width$}  {:>9.2}×  {:>9.2}×  {:>9.2}×  {:>11.2}×",
            "the first beside it",
            times(first.p50, other.p50),
            times(first.p99, other.p99),
            ratio(first.memory as u64, other.memory as u64),
            ratio(first.fuel, other.fuel),
        );
    }
    text
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio with two decimals needs no more than 52 bits"
)]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let times: Vec<_> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!(percentile(&times, 50), Duration::from_micros(100));
        assert_eq!(percentile(&times, 99), Duration::from_micros(198));
        assert_eq!(percentile(&times[..1], 99), Duration::from_micros(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn the_table_stands_in_columns() {
        let measurements = |name: &str, times: u32| Measurements {
            name: name.to_owned(),
            p50: Duration::from_nanos(21_400) * times,
            p99: Duration::from_micros(61) * times,
            memory: 1_179_648,
            fuel: 20_000 * u64::from(times),
        };
        let both = [
            measurements("a.wasm", 3),
            measurements("/guests/serial-walk.wasm", 1),
        ];
        insta::assert_snapshot!(table(&both, 1000));
    }
}
