//! One line per step with its elapsed time: a spinner on a terminal, plain lines in a log.

use std::{
    fmt::Write as _,
    io::{IsTerminal, stderr},
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::interrupt;

/// Shows the progress of the work. Lines go to standard error, so that standard output has only results.
#[derive(Debug, Clone)]
pub struct Progress {
    begin: Instant,
    terminal: bool,
    stages: Arc<Mutex<Vec<Stage>>>,
}

/// A stage of the work, of several steps. It lasts until the next one begins.
#[derive(Debug)]
struct Stage {
    what: &'static str,
    begin: Instant,
}

impl Progress {
    /// Counts time from now.
    pub fn start() -> Self {
        Self {
            begin: Instant::now(),
            terminal: stderr().is_terminal(),
            stages: Arc::default(),
        }
    }

    /// Begins the next stage.
    pub fn stage(&self, what: &'static str) {
        let mut stages = self.stages.lock();
        stages.push(Stage {
            what,
            begin: Instant::now(),
        });
    }

    /// Prints how long each stage took.
    pub fn summary(&self) {
        let stages = self.stages.lock();
        eprint!("{}", table(&stages, self.begin, Instant::now()));
    }

    /// Begins a step. [`Step::done`] ends it. A step that is dropped has failed.
    pub fn step(&self, what: impl Into<String>) -> Step {
        let what = what.into();
        let bar = self.terminal.then(|| spinner(&what));
        Step {
            progress: self.clone(),
            what,
            begin: Instant::now(),
            bar,
            ended: false,
        }
    }

    /// Runs `work` as one step.
    pub fn run<T, E>(
        &self,
        what: impl Into<String>,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let step = self.step(what);
        let result = work()?;
        step.done();
        Ok(result)
    }

    /// Waits for `work` as one step.
    pub async fn wait<T, E>(
        &self,
        what: impl Into<String>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let step = self.step(what);
        let result = work.await?;
        step.done();
        Ok(result)
    }

    /// Time since the work began.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    fn line(&self, step: &str, took: Duration, outcome: &str) {
        let total = self.elapsed().as_secs_f64();
        let took = took.as_secs_f64();
        eprintln!("[{total:7.1} s] {outcome:6} {step} ({took:.1} s)");
    }
}

/// A step of the work.
#[derive(Debug)]
pub struct Step {
    progress: Progress,
    what: String,
    begin: Instant,
    bar: Option<ProgressBar>,
    ended: bool,
}

impl Step {
    /// The step was done.
    pub fn done(mut self) {
        self.finish("done");
    }

    /// Adds the result of the step to its line.
    pub fn note(&mut self, note: &str) {
        self.what = format!("{}: {note}", self.what);
    }

    fn finish(&mut self, outcome: &str) {
        self.ended = true;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.progress
            .line(&self.what, self.begin.elapsed(), outcome);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(if interrupt::came() { "left" } else { "FAILED" });
        }
    }
}

/// A line for each stage and one for the whole.
fn table(stages: &[Stage], begin: Instant, end: Instant) -> String {
    let ends = stages.iter().skip(1).map(|next| next.begin).chain([end]);
    let parts = stages
        .iter()
        .zip(ends)
        .map(|(stage, end)| (stage.what, end - stage.begin));
    let whole = ("in all, since the program started", end - begin);
    let mut table = "measured, stage by stage:\n".to_owned();
    for (what, took) in parts.chain([whole]) {
        // Writing to a String cannot fail.
        let _ = writeln!(table, "  {:7.1} s  {what}", took.as_secs_f64());
    }
    table
}

fn spinner(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner()
        .with_style(style)
        .with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_lasts_until_the_next_and_the_last_until_the_end() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let stages = [("build", 1), ("start", 61)].map(|(what, seconds)| Stage {
            what,
            begin: after(seconds),
        });
        assert_eq!(
            table(&stages, begin, after(62)),
            "measured, stage by stage:\n\
             \x20    60.0 s  build\n\
             \x20     1.0 s  start\n\
             \x20    62.0 s  in all, since the program started\n"
        );
    }
}
