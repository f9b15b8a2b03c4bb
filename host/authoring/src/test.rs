//! `policy test`: runs a folder of cases.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use clap::Args;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::policy_request::PolicyRequest;
use ipu_guest_host::{Budget, Limits, OfflineGuest};
use ipu_text::explain;

use super::case::{Case, CaseError, Outcome};
use super::document::{DocumentError, document, is_yaml};
use super::host_verdict::host_verdict;
use super::world::World;
use super::{PolicyCliError, failed_to, junit, no_policy};

#[derive(Args, Clone, Debug)]
pub(super) struct TestArgs {
    /// The component, such as my-placement.wasm.
    file: PathBuf,
    /// Folder of cases, one JSON or YAML file each: {settings, request, expect}.
    folder: PathBuf,
    /// The world that it should implement; by default the one that its exports show.
    #[arg(long)]
    world: Option<World>,
    /// File for a report in JUnit's XML.
    #[arg(long)]
    junit: Option<PathBuf>,
}

pub(super) fn run(args: &TestArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let hook = args.world.map(Hook::from);
    let guest = OfflineGuest::open(&args.file, hook, Limits::for_authoring(), Budget::Time)
        .map_err(no_policy(&args.file))?;
    let files = cases(&args.folder)?;
    writeln!(
        out,
        "running {} cases of {}",
        files.len(),
        args.file.display()
    )?;
    let mut outcomes = Vec::new();
    for file in &files {
        let outcome = outcome(&guest, file);
        let word = if outcome.failures.is_empty() {
            "ok"
        } else {
            "FAILED"
        };
        writeln!(out, "case {} ... {word}", outcome.name)?;
        outcomes.push(outcome);
    }
    summarize(&outcomes, out)?;
    if let Some(file) = &args.junit {
        let report = junit::report(&args.file.display().to_string(), &outcomes);
        fs::write(file, report).map_err(failed_to("write", file))?;
    }
    let failed = failed(&outcomes).count();
    if failed > 0 {
        return Err(PolicyCliError::CasesFailed {
            failed,
            cases: outcomes.len(),
        });
    }
    Ok(())
}

/// Returns the files of the cases in a folder, by name.
fn cases(folder: &Path) -> Result<Vec<PathBuf>, PolicyCliError> {
    let failed = failed_to("read", folder);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(&failed)? {
        let file = entry.map_err(&failed)?.path();
        let is_json = file
            .extension()
            .is_some_and(|extension| extension == "json");
        if is_json || is_yaml(&file) {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(PolicyCliError::NoCases(folder.to_owned()));
    }
    files.sort();
    Ok(files)
}

/// Reason why a file is not a case.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Case(#[from] CaseError),
}

/// Runs one case. A file that is not a case fails, and the others run.
fn outcome(guest: &OfflineGuest, file: &Path) -> Outcome {
    let name = file.file_stem().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let read = || Ok::<_, ReadError>(Case::parse(guest.hook(), document(file)?)?);
    let case = match read() {
        Ok(case) => case,
        Err(error) => {
            return Outcome {
                name,
                time: Duration::ZERO,
                failures: vec![explain(&error)],
            };
        }
    };
    let result = guest.call(&case.settings, &case.request);
    let ask = |request: &PolicyRequest| guest.call(&case.settings, request).answer;
    let verdict = host_verdict(&case.request, &result.answer, ask);
    Outcome {
        name,
        time: result.time,
        failures: case.failures(&result.answer, &verdict),
    }
}

fn failed(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes
        .iter()
        .filter(|outcome| !outcome.failures.is_empty())
}

fn summarize(outcomes: &[Outcome], out: &mut impl io::Write) -> io::Result<()> {
    for outcome in failed(outcomes) {
        writeln!(out, "\n---- {} ----", outcome.name)?;
        for failure in &outcome.failures {
            writeln!(out, "{failure}")?;
        }
    }
    let failed = failed(outcomes).count();
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let passed = outcomes.len() - failed;
    writeln!(out, "\nresult: {result}. {passed} passed; {failed} failed")
}
