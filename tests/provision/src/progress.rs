//! One line per step with its elapsed time: a spinner on a terminal, plain lines in a log.

use std::{
    fmt::Write as _,
    io::{IsTerminal, stderr},
    slice,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::interrupt;

/// The variable with the stages of the program that started this one, as JSON.
pub const EARLIER_STAGES: &str = "IPU_OPERATOR_STAGES";

/// The variable with the time at which `make` started, in seconds since 1970.
const BEGAN: &str = "IPU_OPERATOR_BEGAN";

/// Shows the progress of the work. Lines go to standard error, so that standard output has only
/// results.
#[derive(Debug, Clone)]
pub struct Progress {
    begin: Instant,
    output: Output,
    stages: Arc<Mutex<Vec<Begun>>>,
}

/// Where steps are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Terminal,
    Log,
    Nowhere,
}

/// A stage of the work, of several steps. It lasts until the next one begins.
#[derive(Debug)]
struct Begun {
    what: &'static str,
    begin: Instant,
}

/// A stage that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    what: String,
    seconds: f64,
}

impl Stage {
    /// A stage that took this time.
    pub fn of(what: &str, took: Duration) -> Self {
        Self {
            what: what.to_owned(),
            seconds: took.as_secs_f64(),
        }
    }

    /// All of them: since `make` started, or else the time of this program.
    pub fn whole(took: Duration) -> Self {
        let began = std::env::var(BEGAN).ok();
        let began = began.and_then(|began| began.parse().ok());
        let began = began.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        match began.and_then(|began| began.elapsed().ok()) {
            Some(since) => Self::of("in all, since make started", since),
            None => Self::of("in all, since this program started", took),
        }
    }

    /// What was done.
    pub fn name(&self) -> &str {
        &self.what
    }

    /// Its time in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

impl Progress {
    /// Counts time from now.
    pub fn start() -> Self {
        Self::with(if stderr().is_terminal() {
            Output::Terminal
        } else {
            Output::Log
        })
    }

    /// Shows no steps: something else shows how far the work is.
    pub fn hidden() -> Self {
        Self::with(Output::Nowhere)
    }

    fn with(output: Output) -> Self {
        Self {
            begin: Instant::now(),
            output,
            stages: Arc::default(),
        }
    }

    /// Begins the next stage.
    pub fn stage(&self, what: &'static str) {
        let mut stages = self.stages.lock();
        stages.push(Begun {
            what,
            begin: Instant::now(),
        });
    }

    /// Prints how long each stage took, and before them those of the program that started this one.
    pub fn summary(&self) {
        let earlier = std::env::var(EARLIER_STAGES).unwrap_or_default();
        // Only `provision` sets the variable. Without it, this program was started by hand.
        let earlier: Vec<Stage> = serde_json::from_str(&earlier).unwrap_or_default();
        let stages = ended(&self.stages.lock(), Instant::now());
        eprint!(
            "{}",
            table(&earlier, &stages, &Stage::whole(self.elapsed()))
        );
    }

    /// Begins a step. [`Step::done`] ends it. A step that is dropped has failed.
    pub fn step(&self, what: impl Into<String>) -> Step {
        let what = what.into();
        let bar = (self.output == Output::Terminal).then(|| spinner(&what));
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
        if self.output == Output::Nowhere {
            return;
        }
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

/// The stages with the times until the next one began.
fn ended(stages: &[Begun], end: Instant) -> Vec<Stage> {
    let ends = stages.iter().skip(1).map(|next| next.begin).chain([end]);
    let ended = stages.iter().zip(ends);
    ended
        .map(|(stage, end)| Stage::of(stage.what, end - stage.begin))
        .collect()
}

/// A line for each stage and one for the whole. The earlier stages ran side by side, before this
/// program started.
fn table(earlier: &[Stage], stages: &[Stage], whole: &Stage) -> String {
    let mut table = String::new();
    let mut part = |title: &str, stages: &[Stage]| {
        if !stages.is_empty() {
            table.push_str(title);
        }
        for Stage { what, seconds } in stages {
            // Writing to a String cannot fail.
            let _ = writeln!(table, "  {seconds:7.1} s  {what}");
        }
    };
    part("built side by side before:\n", earlier);
    part("measured, stage by stage:\n", stages);
    part("", slice::from_ref(whole));
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
        let stages = [("build", 1), ("start", 61)].map(|(what, seconds)| Begun {
            what,
            begin: after(seconds),
        });
        let earlier = [Stage::of("crates", Duration::from_mins(5))];
        assert_eq!(
            table(
                &earlier,
                &ended(&stages, after(62)),
                &Stage::of("in all", Duration::from_secs(362)),
            ),
            "built side by side before:\n\
             \x20   300.0 s  crates\n\
             measured, stage by stage:\n\
             \x20    60.0 s  build\n\
             \x20     1.0 s  start\n\
             \x20   362.0 s  in all\n"
        );
    }
}
