//! `policy replay`: calls two components with recorded requests, and prints the differences.
//!
//! The budget of a call is fuel, and the output has no times: the same three files give the same
//! output on every machine.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use ipu_guest_host::policy_request::PolicyRequest;
use ipu_guest_host::record::{LONGEST, Outcome, Record};
use ipu_guest_host::{Budget, CallResult, Limits, OfflineGuest};
use ipu_text::explain;
use json_patch::PatchOperation;
use serde_json::{Value, json};

use super::host_verdict::host_verdict;
use super::settings::settings;
use super::{PolicyCliError, failed_to, no_answer, no_policy};

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

/// Counts over all records.
#[derive(Default)]
struct Summary {
    replayed: usize,
    /// Records of other hooks.
    skipped: usize,
    differ: usize,
    /// Different answers with another verdict of the host.
    verdicts_differ: usize,
    /// Answers of `a` that differ from the recorded ones.
    unreproduced: usize,
    fuel: [u64; 2],
}

pub(super) fn run(args: &ReplayArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let open = |file: &Path, hook| {
        OfflineGuest::open(file, hook, Limits::for_authoring(), Budget::Fuel(args.fuel))
            .map_err(no_policy(file))
    };
    let a = open(&args.a, None)?;
    let b = open(&args.b, Some(a.hook()))?;
    writeln!(out, "a  {}\nb  {}", a.digest(), b.digest())?;
    let settings_b = args.settings_b.as_deref().unwrap_or(&args.settings);
    let call_a = a.caller(&args.settings).map_err(no_answer(&args.a))?;
    let call_b = b.caller(settings_b).map_err(no_answer(&args.b))?;
    let mut summary = Summary::default();
    for_each_record(&args.recorded, |line, record, request| {
        if record.hook != a.hook() {
            summary.skipped += 1;
            return Ok(());
        }
        let replayed = [
            replayed(&a, &call_a, request),
            replayed(&b, &call_b, request),
        ];
        compare(line, record, &replayed, a.digest(), &mut summary, out)
    })?;
    summarize(&summary, out)?;
    if args.exit_code && summary.differ > 0 {
        return Err(PolicyCliError::AnswersDiffer(summary.differ));
    }
    Ok(())
}

/// Result of one component for one request.
struct Replayed {
    /// The answer or the error.
    found: Value,
    /// The outcome as in a record.
    recorded: Outcome,
    /// The verdict of the host.
    verdict: Value,
    fuel: u64,
}

fn replayed(
    guest: &OfflineGuest,
    call: &impl Fn(&PolicyRequest) -> CallResult,
    request: &PolicyRequest,
) -> Replayed {
    let result = call(request);
    let ask = |request: &PolicyRequest| call(request).answer;
    let verdict = json!(host_verdict(request, &result.answer, ask));
    let answer = result.answer.map_err(|error| explain(&error));
    let record = Record::of(request, &answer, guest.digest().clone());
    Replayed {
        found: match answer {
            Ok(answer) => json!({ "answer": answer }),
            Err(error) => json!({ "error": error }),
        },
        recorded: record.outcome,
        verdict: verdict["verdict"].clone(),
        fuel: result.fuel.unwrap_or_default(),
    }
}

/// Compares the results of one record, counts them, and prints the differences.
fn compare(
    line: usize,
    record: &Record,
    [a, b]: &[Replayed; 2],
    digest_a: &ipu_api::guest::digest::ModuleDigest,
    summary: &mut Summary,
    out: &mut impl io::Write,
) -> Result<(), PolicyCliError> {
    summary.replayed += 1;
    summary.fuel[0] = summary.fuel[0].saturating_add(a.fuel);
    summary.fuel[1] = summary.fuel[1].saturating_add(b.fuel);
    if record.digest == *digest_a && record.outcome != a.recorded {
        summary.unreproduced += 1;
        writeln!(
            out,
            "line {line}: the answer of a differs from the recorded one"
        )?;
    }
    if a.found == b.found && a.verdict == b.verdict {
        return Ok(());
    }
    summary.differ += 1;
    write!(out, "line {line}: the answers differ")?;
    if a.verdict != b.verdict {
        summary.verdicts_differ += 1;
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

/// Formats a difference, with the value of `a`.
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

fn summarize(summary: &Summary, out: &mut impl io::Write) -> io::Result<()> {
    let Summary {
        replayed,
        skipped,
        differ,
        verdicts_differ,
        unreproduced,
        fuel: [a, b],
    } = summary;
    writeln!(
        out,
        "{replayed} requests: {same} same answers, {differ} different answers, of which {verdicts_differ} \
         change the verdict of the operator",
        same = replayed - differ,
    )?;
    writeln!(out, "fuel: a {a}, b {b}")?;
    if *skipped > 0 {
        writeln!(out, "{skipped} records of other hooks were skipped")?;
    }
    if *unreproduced > 0 {
        writeln!(
            out,
            "{unreproduced} answers of a differ from the recorded ones: other settings, or a decision by \
             values that are not recorded"
        )?;
    }
    Ok(())
}

/// Calls `each` for every record, with its line number from 1. Skips empty lines.
fn for_each_record(
    file: &Path,
    mut each: impl FnMut(usize, &Record, &PolicyRequest) -> Result<(), PolicyCliError>,
) -> Result<(), PolicyCliError> {
    let failed = failed_to("read", file);
    let mut reader = BufReader::new(File::open(file).map_err(&failed)?);
    for number in 1.. {
        let mut line = String::new();
        let mut limited = reader.by_ref().take(LONGEST + 1);
        if limited.read_line(&mut line).map_err(&failed)? == 0 {
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
        let (record, request) = Record::parse(&line).map_err(|source| PolicyCliError::Record {
            file: file.to_owned(),
            line: number,
            source,
        })?;
        each(number, &record, &request)?;
    }
    Ok(())
}
