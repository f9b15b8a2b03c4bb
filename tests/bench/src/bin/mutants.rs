//! Shows that tests find mistakes: makes each mistake of a list in a copy of the sources, and
//! requires that the simulation of the partition core and its model check end with a broken
//! invariant, or that tests fail.
//!
//! The copy and its build stay in `target/mutants`, so that cargo compiles only what a mistake
//! changes. Arguments select the mistakes whose names contain one of them. If `IPU_OPERATOR_MODEL`
//! names a bound, only the model check of this bound must find them.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use bench::mutations::{self, Expected, MODEL, Mutation, SIMULATION, Tests};
use release::guests::checkout;

/// The environment variable with the bounds that the model check explores.
const BOUND: &str = "IPU_OPERATOR_MODEL";

/// The text before a broken rule.
const BROKEN: &str = "broken invariant: ";

/// The text before and after the name of a failed test.
const FAILED: (&str, &str) = ("test ", " ... FAILED");

/// The tests that ran with a mistake.
struct Verdict(Vec<Finding>);

/// The result of some tests.
struct Finding {
    tests: Tests,
    /// The rule or the test that found the mistake. `None`: none did.
    found: Option<String>,
    expected: Expected,
}

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let bound = std::env::var(BOUND).ok().filter(|name| !name.is_empty());
    let bound = bound.map(|name| -> &'static str { name.leak() });
    let copy = Copy::new()?;
    let is_wanted =
        |one: &&Mutation| words.is_empty() || words.iter().any(|word| one.name.contains(word));
    let wanted: Vec<&Mutation> = mutations::all().filter(is_wanted).collect();
    let tried = wanted.iter().flat_map(|one| tests_of(one, bound));
    let tried: BTreeSet<Tests> = tried.map(|(tests, _)| tests).collect();
    // `make soak` shows that the large bounds hold without a mistake.
    for tests in tried.into_iter().filter(|one| one.bound.is_none()) {
        let plain = copy.cargo(tests, tests.named)?;
        let said = text(&plain);
        ensure!(plain.status.success(), "{tests} fails as it is:\n{said}");
    }
    let (mut survivors, mut surprises) = (0, 0);
    for mutation in wanted {
        let began = Instant::now();
        let verdict = copy
            .try_mutation(mutation, tests_of(mutation, bound))
            .with_context(|| format!("failed to try the mutation `{}`", mutation.name))?;
        survivors += u32::from(verdict.has_survived());
        surprises += u32::from(verdict.is_surprising());
        let seconds = began.elapsed().as_secs();
        let mut out = std::io::stdout();
        writeln!(out, "{seconds:>4} s | {} | {verdict}", mutation.name)?;
        out.flush()?;
    }
    if survivors > 0 {
        println!("{survivors} mutations were not found: extend the tests that must find them");
    }
    if surprises > 0 {
        println!("{surprises} mutations were found by the model check too: set FoundBy::Both");
    }
    Ok(if survivors + surprises > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The tests that run with a mistake, and their expected results. With a bound, only its model
/// check runs.
fn tests_of(mutation: &Mutation, bound: Option<&'static str>) -> Vec<(Tests, Expected)> {
    match bound {
        Some(bound) => vec![(mutations::model_of(bound), Expected::Found)],
        None => mutation.found_by.tried(),
    }
}

impl Verdict {
    /// Whether a check that must find the mistake did not find it.
    fn has_survived(&self) -> bool {
        let Verdict(findings) = self;
        let mut missing = findings.iter().filter(|one| one.found.is_none());
        missing.any(|one| one.expected == Expected::Found)
    }

    /// Whether something found the mistake although there is a reason why it does not.
    fn is_surprising(&self) -> bool {
        let Verdict(findings) = self;
        let mut found = findings.iter().filter(|one| one.found.is_some());
        found.any(|one| one.expected != Expected::Found)
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Verdict(findings) = self;
        for (number, finding) in findings.iter().enumerate() {
            let between = if number > 0 { " | " } else { "" };
            write!(f, "{between}{}: ", finding.tests)?;
            match (&finding.found, finding.expected) {
                (Some(found), Expected::Found) => write!(f, "{found}")?,
                (Some(found), Expected::Missed(reason)) => {
                    write!(f, "{found}, although {reason}")?;
                }
                (None, Expected::Found) => write!(f, "not found")?,
                (None, Expected::Missed(reason)) => write!(f, "not found, because {reason}")?,
            }
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
        let repository = checkout();
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

    fn try_mutation(
        &self,
        mutation: &Mutation,
        tried: Vec<(Tests, Expected)>,
    ) -> anyhow::Result<Verdict> {
        let path = self.sources.join(mutation.file);
        let original = fs::read_to_string(&path)?;
        ensure!(
            original.matches(mutation.text).count() == 1,
            "its text does not occur exactly once in {}",
            mutation.file
        );
        fs::write(&path, original.replace(mutation.text, mutation.instead))?;
        let findings = tried.into_iter().map(|(tests, expected)| {
            Ok(Finding {
                found: self.found(tests)?,
                tests,
                expected,
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
            Some(bound) => cargo.env(BOUND, bound),
            None => cargo.env_remove(BOUND),
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
