//! The durations of the trials.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use parking_lot::Mutex;

/// The variable that names a file. Each trial appends a line with its seconds and its name.
const FILE: &str = "IPU_OPERATOR_TEST_TIMES";

/// The number of slowest trials that are printed.
const SLOWEST: usize = 20;

/// The durations so far.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    file: Option<PathBuf>,
    ended: Arc<Mutex<Vec<(Duration, &'static str)>>>,
}

impl Times {
    /// None yet.
    pub(crate) fn from_env() -> Self {
        Self {
            file: std::env::var_os(FILE).map(PathBuf::from),
            ended: Arc::default(),
        }
    }

    /// Adds the duration of a trial.
    pub(crate) fn add(&self, name: &'static str, took: Duration) -> Result<(), Failed> {
        self.ended.lock().push((took, name));
        let Some(path) = &self.file else {
            return Ok(());
        };
        let mut file = File::options().create(true).append(true).open(path)?;
        let line = format!("{:.1} e2e::{name}\n", took.as_secs_f64());
        Ok(file.write_all(line.as_bytes())?)
    }

    /// Prints the slowest trials, and the sum of all.
    pub(crate) fn print(&self) {
        let mut ended = self.ended.lock().clone();
        ended.sort_unstable();
        let sum: Duration = ended.iter().map(|(took, _)| took).sum();
        println!("the slowest of {} trials:", ended.len());
        for (took, name) in ended.iter().rev().take(SLOWEST) {
            println!("  {:7.1} s  {name}", took.as_secs_f64());
        }
        println!("  {:7.1} s  sum of all", sum.as_secs_f64());
    }
}
