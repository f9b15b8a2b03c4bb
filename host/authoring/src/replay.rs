//! `policy replay`: recorded requests through two components, and what would have differed.
//!
//! Calls end by fuel and not by the clock, and nothing of time is printed: the same three files give
//! the same text on every machine.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use ipu_guest_host::question::Question;
use ipu_guest_host::record::{LONGEST, Outcome, Record};
use ipu_guest_host::{Asked, Limits, Meter, Trial};
use ipu_text::explain;
use json_patch::PatchOperation;
use serde_json::{Value, json};

use super::ruling::ruling;
use super::settings::settings;
use super::{PolicyCliError, no_answer, no_policy};

#[derive(Args, Clone, Debug)]
pub(super) struct ReplayArgs {
    /// The active component.
    a: PathBuf,
    /// The candidate.
    b: PathBuf,
    /// Recorded requests, one JSON object for each line: {hook, request, answer, digest}.
    recorded: PathBuf,
    /// Settings for both, as a JSON object.
    #[arg(long, default_value = "{}", value_parser = settings)]
    settings: String,
    /// Settings for the candidate, where it gets others.
    #[arg(long, value_parser = settings)]
    settings_b: Option<String>,
    /// Fuel that a call may spend; about one unit for each instruction.
    #[arg(long, default_value_t = 1_000_000_000)]
    fuel: u64,
    /// Fail where an answer differs.
    #[arg(long)]
    exit_code: bool,
}

/// What is counted over all records.
#[derive(Default)]
struct Tally {
    asked: usize,
    /// Records of other hooks.
    passed_over: usize,
    differ: usize,
    /// Of those that differ: how many the host would have decided otherwise.
    decided: usize,
    /// Recorded of `a`, which now answers something else.
    unlike: usize,
    fuel: [u64; 2],
}

pub(super) fn run(args: &ReplayArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let open = |file: &Path, slot| {
        Trial::open(file, slot, Limits::of_authors(), Meter::Fuel(args.fuel))
            .map_err(no_policy(file))
    };
    let a = open(&args.a, None)?;
    let b = open(&args.b, Some(a.slot()))?;
    writeln!(out, "a  {}\nb  {}", a.digest(), b.digest())?;
    let settings_b = args.settings_b.as_deref().unwrap_or(&args.settings);
    let asking_a = a.asking(&args.settings).map_err(no_answer(&args.a))?;
    let asking_b = b.asking(settings_b).map_err(no_answer(&args.b))?;
    let mut tally = Tally::default();
    for_each_record(&args.recorded, |line, record, question| {
        if record.hook != a.slot() {
            tally.passed_over += 1;
            return Ok(());
        }
        let replayed = [
            replayed(&a, asking_a(question), question),
            replayed(&b, asking_b(question), question),
        ];
        compare(line, record, &replayed, a.digest(), &mut tally, out)
    })?;
    summarize(&tally, out)?;
    if args.exit_code && tally.differ > 0 {
        return Err(PolicyCliError::AnswersDiffer(tally.differ));
    }
    Ok(())
}

/// One request through one component.
struct Replayed {
    /// The answer or the error.
    found: Value,
    /// As it would be recorded.
    recorded: Outcome,
    /// What the host would make of it.
    verdict: Value,
    fuel: u64,
}

fn replayed(trial: &Trial, asked: Asked, question: &Question) -> Replayed {
    let verdict = json!(ruling(question, &asked.answer));
    let answer = asked.answer.map_err(|error| explain(&error));
    let record = Record::of(question, &answer, trial.digest().clone());
    Replayed {
        found: match answer {
            Ok(answer) => json!({ "answer": answer }),
            Err(error) => json!({ "error": error }),
        },
        recorded: record.outcome,
        verdict: verdict["verdict"].clone(),
        fuel: asked.fuel.unwrap_or_default(),
    }
}

/// Counts one record, and prints what differs.
fn compare(
    line: usize,
    record: &Record,
    [a, b]: &[Replayed; 2],
    digest_a: &ipu_guest_host::model::ModuleDigest,
    tally: &mut Tally,
    out: &mut impl io::Write,
) -> Result<(), PolicyCliError> {
    tally.asked += 1;
    tally.fuel[0] = tally.fuel[0].saturating_add(a.fuel);
    tally.fuel[1] = tally.fuel[1].saturating_add(b.fuel);
    if record.digest == *digest_a && record.outcome != a.recorded {
        tally.unlike += 1;
        writeln!(
            out,
            "line {line}: the answer of a differs from the recorded one"
        )?;
    }
    if a.found == b.found && a.verdict == b.verdict {
        return Ok(());
    }
    tally.differ += 1;
    write!(out, "line {line}: the answers differ")?;
    if a.verdict != b.verdict {
        tally.decided += 1;
        write!(
            out,
            "; the operator's verdict too: {} → {}",
            a.verdict, b.verdict
        )?;
    }
    writeln!(out)?;
    for operation in json_patch::diff(&a.found, &b.found).iter() {
        writeln!(out, "  {}", shown(operation, &a.found))?;
    }
    Ok(())
}

/// One difference, with what stands there in the answer of `a`.
fn shown(operation: &PatchOperation, a: &Value) -> String {
    let path = operation.path();
    let before = a.pointer(path.as_str()).unwrap_or(&Value::Null);
    match operation {
        PatchOperation::Add(add) => format!("{path}: added {}", add.value),
        PatchOperation::Remove(_) => format!("{path}: {before} removed"),
        PatchOperation::Replace(replace) => format!("{path}: {before} → {}", replace.value),
        PatchOperation::Move(_) | PatchOperation::Copy(_) | PatchOperation::Test(_) => {
            format!("{path}: {}", json!(operation))
        }
    }
}

fn summarize(tally: &Tally, out: &mut impl io::Write) -> io::Result<()> {
    let Tally {
        asked,
        passed_over,
        differ,
        decided,
        unlike,
        fuel: [a, b],
    } = tally;
    writeln!(
        out,
        "{asked} requests: {same} same answers, {differ} different answers, of which {decided} \
         change the verdict of the operator",
        same = asked - differ,
    )?;
    writeln!(out, "fuel: a {a}, b {b}")?;
    if *passed_over > 0 {
        writeln!(out, "{passed_over} records of other hooks were skipped")?;
    }
    if *unlike > 0 {
        writeln!(
            out,
            "{unlike} answers of a differ from the recorded ones: other settings, or a decision by \
             values that are not recorded"
        )?;
    }
    Ok(())
}

/// Reads the records one after the other; lines count from 1, and empty ones are passed over.
fn for_each_record(
    file: &Path,
    mut each: impl FnMut(usize, &Record, &Question) -> Result<(), PolicyCliError>,
) -> Result<(), PolicyCliError> {
    let failed = |source| PolicyCliError::Read {
        file: file.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(file).map_err(failed)?);
    for number in 1.. {
        let mut line = String::new();
        let mut limited = reader.by_ref().take(LONGEST + 1);
        if limited.read_line(&mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        if line.len() as u64 > LONGEST {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("line {number} has more than {LONGEST} bytes"),
            )));
        }
        if line.trim().is_empty() {
            continue;
        }
        let (record, question) = Record::parse(&line).map_err(|source| PolicyCliError::Record {
            file: file.to_owned(),
            line: number,
            source,
        })?;
        each(number, &record, &question)?;
    }
    Ok(())
}
