//! `policy bench`: what a call takes, beside another component, by default the built-in one.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ipu_guest_host::question::Question;
use ipu_guest_host::{Asked, Limits, Meter, Trial};

use super::request::question;
use super::settings::settings;
use super::{PolicyCliError, no_answer, no_policy};

/// Calls before those that count, until memory and caches are as in an operator that has run for a
/// while.
const WARMING: u32 = 32;

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
    /// File with the request, as of `policy run`; by default the one that policies are tried on.
    #[arg(long)]
    request: Option<PathBuf>,
    /// Settings for both, as a JSON object.
    #[arg(long, default_value = "{}", value_parser = settings)]
    settings: String,
    /// Calls of each component that are measured.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
}

/// What the calls of one component took.
struct Figures {
    name: String,
    p50: Duration,
    p99: Duration,
    /// Most memory of an instance, in bytes.
    memory: usize,
    fuel: u64,
}

pub(super) fn run(args: &BenchArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let first = open(&args.file, None)?;
    let request = question(&first, args.request.as_deref())?;
    let slot = first.slot();
    let built_in = args.guests_dir.join(slot.file_name());
    let other = match &args.against {
        Some(file) => Some(file),
        None => Some(&built_in).filter(|file| file.is_file()),
    };
    let mut subjects = vec![(&args.file, first)];
    if let Some(file) = other {
        subjects.push((file, open(file, Some(slot))?));
    }
    let figures = measure(args, &subjects, &request)?;
    out.write_all(table(&figures, args.calls).as_bytes())?;
    if other.is_none() {
        writeln!(
            out,
            "There is no built-in component {} to compare with; name one with --against.",
            built_in.display()
        )?;
    }
    Ok(())
}

fn open(file: &Path, slot: Option<ipu_guest_host::model::Slot>) -> Result<Trial, PolicyCliError> {
    Trial::open(file, slot, Limits::of_authors(), Meter::Time).map_err(no_policy(file))
}

/// Asks the components by turns, so that whatever else the machine does meets all alike.
fn measure(
    args: &BenchArgs,
    subjects: &[(&PathBuf, Trial)],
    request: &Question,
) -> Result<Vec<Figures>, PolicyCliError> {
    let asking: Vec<_> = subjects
        .iter()
        .map(|(file, trial)| trial.asking(&args.settings).map_err(no_answer(file)))
        .collect::<Result<_, _>>()?;
    let mut times = vec![Vec::new(); subjects.len()];
    let mut memory = vec![0; subjects.len()];
    for call in 0..args.calls.saturating_add(WARMING) {
        for (at, (file, _)) in subjects.iter().enumerate() {
            let asked = answered(asking[at](request), file)?;
            memory[at] = asked.memory.max(memory[at]);
            if call >= WARMING {
                times[at].push(asked.time);
            }
        }
    }
    let mut figures = Vec::new();
    for (at, (file, trial)) in subjects.iter().enumerate() {
        times[at].sort_unstable();
        figures.push(Figures {
            name: file.display().to_string(),
            p50: percentile(&times[at], 50),
            p99: percentile(&times[at], 99),
            memory: memory[at],
            fuel: fuel(file, trial, args, request)?,
        });
    }
    Ok(figures)
}

/// Fuel of one call, counted in an engine of its own: counting takes time.
fn fuel(
    file: &Path,
    trial: &Trial,
    args: &BenchArgs,
    request: &Question,
) -> Result<u64, PolicyCliError> {
    let metered = Trial::open(
        file,
        Some(trial.slot()),
        Limits::of_authors(),
        Meter::Fuel(u64::MAX),
    )
    .map_err(no_policy(file))?;
    let asked = answered(metered.ask(&args.settings, request), file)?;
    Ok(asked.fuel.unwrap_or_default())
}

/// A call without an answer ends the measuring: how fast something fails is no figure.
fn answered(asked: Asked, file: &Path) -> Result<Asked, PolicyCliError> {
    match asked.answer {
        Err(source) => Err(no_answer(file)(source)),
        Ok(_) => Ok(asked),
    }
}

/// The value that so many of a hundred are not above, of sorted ones; zero where there is none.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    let at = rank.saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

fn table(figures: &[Figures], calls: u32) -> String {
    let width = figures.iter().map(|one| one.name.chars().count()).max();
    let width = width.unwrap_or_default().max("the first beside it".len());
    let mut text = format!(
        "{:width$}  {:>10}  {:>10}  {:>10}  {:>12}\n",
        format!("{calls} calls"),
        "p50",
        "p99",
        "memory",
        "fuel",
    );
    for one in figures {
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
    if let [first, other] = figures {
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
        let figures = |name: &str, times: u32| Figures {
            name: name.to_owned(),
            p50: Duration::from_nanos(21_400) * times,
            p99: Duration::from_micros(61) * times,
            memory: 1_179_648,
            fuel: 20_000 * u64::from(times),
        };
        let both = [figures("a.wasm", 3), figures("/guests/serial-walk.wasm", 1)];
        insta::assert_snapshot!(table(&both, 1000));
    }
}
