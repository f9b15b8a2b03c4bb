//! Shows that tests find mistakes: makes each mistake of a list in a copy of the sources, and requires that
//! the simulation of the partition core and its model check end with a broken invariant, or that tests fail.
//!
//! The copy and its build stay in `target/mutants`, so that cargo compiles only what a mistake
//! changes. Arguments select the mistakes whose names contain one of them.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use tests::mutations::{self, MODEL, Mutation, SIMULATION, Tests};

/// The text before a broken rule.
const BROKEN: &str = "broken invariant: ";

/// The text before and after the name of a failed test.
const FAILED: (&str, &str) = ("test ", " ... FAILED");

/// What was run with a mistake.
struct Verdict(Vec<Finding>);

/// The result of some tests.
struct Finding {
    tests: Tests,
    /// The rule or the test that found the mistake. `None`: none did.
    found: Option<String>,
    is_demanded: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let copy = Copy::new()?;
    let is_wanted =
        |one: &&Mutation| words.is_empty() || words.iter().any(|word| one.name.contains(word));
    let wanted: Vec<&Mutation> = mutations::all().filter(is_wanted).collect();
    let tried = wanted.iter().flat_map(|one| one.found_by.tried());
    let tried: BTreeSet<Tests> = tried.map(|(tests, _)| tests).collect();
    for tests in tried {
        let plain = copy.cargo(tests, tests.named)?;
        let said = text(&plain);
        ensure!(plain.status.success(), "{tests} fails as it is:\n{said}");
    }
    let mut survivors = 0;
    for mutation in wanted {
        let began = Instant::now();
        let verdict = copy
            .try_mutation(mutation)
            .with_context(|| format!("failed to try the mutation `{}`", mutation.name))?;
        survivors += u32::from(verdict.has_survived());
        let seconds = began.elapsed().as_secs();
        let mut out = std::io::stdout();
        writeln!(out, "{seconds:>4} s | {} | {verdict}", mutation.name)?;
        out.flush()?;
    }
    if survivors > 0 {
        println!("{survivors} mutations were not found: extend the tests that must find them");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

impl Verdict {
    /// Whether a check that must find the mistake did not find it.
    fn has_survived(&self) -> bool {
        let Verdict(findings) = self;
        let mut missing = findings.iter().filter(|one| one.found.is_none());
        missing.any(|one| one.is_demanded)
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Verdict(findings) = self;
        for (number, finding) in findings.iter().enumerate() {
            let between = if number > 0 { " | " } else { "" };
            let found = finding.found.as_deref().unwrap_or("not found");
            write!(f, "{between}{}: {found}", finding.tests)?;
        }
        Ok(())
    }
}

/// A copy of the sources, and the folder of its build.
struct Copy {
    sources: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Brings the copy up to date with the files that git knows. An unchanged file keeps its time,
    /// so that cargo does not compile it again.
    fn new() -> anyhow::Result<Self> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("the tests crate is a folder of the repository")?;
        let target = repository.join("target/mutants");
        let sources = target.join("sources");
        let listed = Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(repository)
            .output()
            .context("failed to run git ls-files")?;
        ensure!(listed.status.success(), "git ls-files: {}", text(&listed));
        let listed = String::from_utf8(listed.stdout).context("a path is not UTF-8")?;
        for path in listed.split_terminator('\0') {
            // git still lists a deleted file if the deletion is not committed.
            if let Ok(wanted) = fs::read(repository.join(path)) {
                write_if_changed(&sources.join(path), &wanted)?;
            }
        }
        Ok(Copy { sources, target })
    }

    fn try_mutation(&self, mutation: &Mutation) -> anyhow::Result<Verdict> {
        let path = self.sources.join(mutation.file);
        let original = fs::read_to_string(&path)?;
        ensure!(
            original.matches(mutation.text).count() == 1,
            "its text does not occur exactly once in {}",
            mutation.file
        );
        fs::write(&path, original.replace(mutation.text, mutation.instead))?;
        let tried = mutation.found_by.tried().into_iter();
        let findings = tried.map(|(tests, is_demanded)| {
            Ok(Finding {
                found: self.found(tests)?,
                tests,
                is_demanded,
            })
        });
        let findings: anyhow::Result<Vec<Finding>> = findings.collect();
        fs::write(&path, original)?;
        findings.map(Verdict)
    }

    /// The rule or the test that finds the mistake in the copy. `None`: none does.
    fn found(&self, tests: Tests) -> anyhow::Result<Option<String>> {
        let built = self.cargo(tests, "--no-run")?;
        let said = text(&built);
        ensure!(built.status.success(), "it does not compile:\n{said}");
        let tried = self.cargo(tests, tests.named)?;
        if tried.status.success() {
            return Ok(None);
        }
        let said = text(&tried);
        let found = if [SIMULATION.named, MODEL.named].contains(&tests.named) {
            let broken = said.split_once(BROKEN);
            broken.map(|(_, rest)| rest.split(':').next().unwrap_or(rest))
        } else {
            let (before, after) = FAILED;
            let mut lines = said.lines();
            lines.find_map(|line| line.strip_prefix(before)?.strip_suffix(after))
        };
        match found {
            Some(found) => Ok(Some(found.to_owned())),
            None => bail!("{tests} failed, but with no broken rule and no failed test:\n{said}"),
        }
    }

    fn cargo(&self, tests: Tests, argument: &str) -> anyhow::Result<Output> {
        let mut cargo = Command::new(env!("CARGO"));
        match tests.bound {
            Some(bound) => cargo.env("IPU_OPERATOR_MODEL", bound),
            None => cargo.env_remove("IPU_OPERATOR_MODEL"),
        };
        cargo
            .args([
                "test",
                "--locked",
                "--workspace",
                "--lib",
                "--package",
                tests.package,
                argument,
            ])
            .current_dir(&self.sources)
            .env("CARGO_TARGET_DIR", &self.target)
            .env_remove("IPU_OPERATOR_SIMULATION_SEED")
            .env_remove("IPU_OPERATOR_SIMULATION_FIRST_SEED")
            .stdin(Stdio::null())
            .output()
            .context("failed to run cargo")
    }
}

fn write_if_changed(path: &Path, wanted: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, wanted).with_context(|| format!("failed to write {}", path.display()))
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}
