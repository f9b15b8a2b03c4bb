//! Shows that the simulation of the partition core and its model check find mistakes: makes each of a list of
//! them in a copy of the sources, and demands that whatever is to find it ends with a broken invariant.
//!
//! The copy and what is compiled of it stay in `target/mutants`, so that only what a mistake changes
//! is compiled again. Words given as arguments select the mistakes whose names hold one of them.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use tests::mutations::{FoundBy, MUTATIONS, Mutation};

/// What is printed before the rule that does not hold.
const BROKEN: &str = "broken invariant: ";

/// The test of the simulation.
const SIMULATION: &str = "a_simulation_of_many_lives_breaks_no_invariant";

/// The test of the model check.
const MODEL: &str = "no_order_of_events_breaks_a_rule";

/// The rules by which a mistake was found; none where it was not.
struct Verdict {
    simulation: Option<String>,
    model: Option<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let copy = Copy::new()?;
    copy.build()
        .context("failed to compile the sources as they are")?;
    for test in [SIMULATION, MODEL] {
        let plain = copy.cargo(&[test])?;
        let said = text(&plain);
        ensure!(plain.status.success(), "{test} fails as it is:\n{said}");
    }
    let mut survivors = 0;
    for mutation in MUTATIONS {
        let is_wanted = words.is_empty() || words.iter().any(|word| mutation.name.contains(word));
        if !is_wanted {
            continue;
        }
        let began = Instant::now();
        let verdict = copy
            .try_mutation(mutation)
            .with_context(|| format!("failed to try the mutation `{}`", mutation.name))?;
        survivors += u32::from(verdict.has_survived(mutation.found_by));
        let seconds = began.elapsed().as_secs();
        let mut out = std::io::stdout();
        writeln!(out, "{seconds:>4} s | {} | {verdict}", mutation.name)?;
        out.flush()?;
    }
    if survivors > 0 {
        println!("{survivors} mutations survived; teach what is to find them");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

impl Verdict {
    /// Whether something that is to find the mistake did not.
    fn has_survived(&self, found_by: FoundBy) -> bool {
        self.simulation.is_none() || found_by == FoundBy::Both && self.model.is_none()
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rule = |rule: &Option<String>| rule.clone().unwrap_or("not found".to_owned());
        let (simulation, model) = (rule(&self.simulation), rule(&self.model));
        write!(f, "simulation: {simulation} | model: {model}")
    }
}

/// A copy of the sources, and the folder that they are compiled in.
struct Copy {
    sources: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Brings the copy up to date with the files that git knows. A file that is as it was keeps its
    /// time, so that nothing is compiled for it.
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
            // One that was deleted and not committed yet is still listed.
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
        let tried = self.build().and_then(|()| {
            Ok(Verdict {
                simulation: self.broken(SIMULATION)?,
                model: self.broken(MODEL)?,
            })
        });
        fs::write(&path, original)?;
        tried
    }

    /// The rule that this test finds broken, if it does.
    fn broken(&self, test: &str) -> anyhow::Result<Option<String>> {
        let tried = self.cargo(&[test])?;
        if tried.status.success() {
            return Ok(None);
        }
        let said = text(&tried);
        let Some((_, rest)) = said.split_once(BROKEN) else {
            bail!("{test} fails, and not by an invariant:\n{said}");
        };
        Ok(Some(rest.split(':').next().unwrap_or(rest).to_owned()))
    }

    fn build(&self) -> anyhow::Result<()> {
        let built = self.cargo(&["--no-run"])?;
        ensure!(
            built.status.success(),
            "it does not compile:\n{}",
            text(&built)
        );
        Ok(())
    }

    fn cargo(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        Command::new(env!("CARGO"))
            .args([
                "test",
                "--locked",
                "--workspace",
                "--lib",
                "--package",
                "ipu-partitions",
            ])
            .args(arguments)
            .current_dir(&self.sources)
            .env("CARGO_TARGET_DIR", &self.target)
            .env_remove("IPU_OPERATOR_MODEL")
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
