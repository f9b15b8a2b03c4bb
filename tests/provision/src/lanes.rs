//! Builds that run side by side, with one bar for all of them: what is built, the share that is
//! done, and an estimate of the time that is left.

use std::{
    io::{IsTerminal, stderr},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use self::share::{Count, Speed};
use crate::progress::Stage;

mod share;

/// The time between two lines in a log that is no terminal.
const QUIET: Duration = Duration::from_secs(30);
/// The time between two states of the bar on a terminal.
const FRAME: Duration = Duration::from_millis(250);

/// One of several builds.
#[derive(Debug)]
pub struct Lane {
    /// What it makes, in the plural, such as `crates`.
    parts: &'static str,
    /// What it is for, in the table at the end.
    what: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    count: Count,
    now: String,
}

impl Lane {
    /// A build of `total` parts, which take `seconds` of processor time if no cache has any of
    /// them.
    pub fn new(what: &'static str, parts: &'static str, total: usize, seconds: f64) -> Self {
        let count = Count {
            done: 0,
            total,
            seconds,
            is_timed: false,
        };
        let now = String::new();
        Self {
            parts,
            what,
            state: Mutex::new(State { count, now }),
        }
    }

    /// The same for few parts, so that the time since the begin says more about them than their
    /// number.
    pub fn timed(what: &'static str, parts: &'static str, total: usize, seconds: f64) -> Self {
        let lane = Self::new(what, parts, total, seconds);
        lane.change(|state| state.count.is_timed = true);
        lane
    }

    /// One more part is done; `now` is its name.
    pub fn advance(&self, now: &str) {
        self.change(|state| {
            state.count.done += 1;
            now.clone_into(&mut state.now);
        });
    }

    /// Sets the number of parts that are done, and of all parts; `now` is what is built.
    pub fn set(&self, done: usize, total: usize, now: &str) {
        self.change(|state| {
            (state.count.done, state.count.total) = (done, total);
            now.clone_into(&mut state.now);
        });
    }

    /// All parts are done, or needed no work.
    fn end(&self) {
        self.change(|state| {
            state.count.done = state.count.total;
            state.now.clear();
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
    }

    fn count(&self) -> Count {
        self.state.lock().count
    }

    /// Its line below the bar, unless it has ended.
    fn line(&self) -> Option<String> {
        let state = self.state.lock();
        let Count { done, total, .. } = state.count;
        let now: String = state.now.chars().take(50).collect();
        (done < total).then(|| format!("{} {done} of {total} {now}", self.parts))
    }
}

/// A build and its lane.
pub type Work<'a, E> = (&'a Lane, Box<dyn FnOnce() -> Result<(), E> + Send + 'a>);

/// Runs all of them at the same time, and shows their progress until the last one ends. Returns how
/// long each took, or the first error, after `abandon` has ended the others.
pub fn run<E: Send>(works: Vec<Work<'_, E>>, abandon: impl FnOnce()) -> Result<Vec<Stage>, E> {
    let lanes: Vec<&Lane> = works.iter().map(|(lane, _)| *lane).collect();
    let begin = Instant::now();
    let (report, reports) = channel();
    thread::scope(|scope| {
        for (lane, work) in works {
            let report = report.clone();
            scope.spawn(move || {
                let done = work();
                lane.end();
                let stage = Stage::of(lane.what, begin.elapsed());
                // Nobody receives it after an earlier error.
                let _ = report.send(done.map(|()| stage));
            });
        }
        drop(report);
        let mut display = Display::new(begin);
        let mut stages = Vec::new();
        loop {
            match reports.recv_timeout(FRAME) {
                Ok(Ok(stage)) => stages.push(stage),
                Ok(Err(error)) => {
                    abandon();
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => display.draw(&lanes),
                Err(RecvTimeoutError::Disconnected) => return Ok(stages),
            }
        }
    })
}

/// The bar on a terminal, and a line now and then in a log.
struct Display {
    begin: Instant,
    bar: Option<ProgressBar>,
    speed: Speed,
    said: Instant,
}

impl Display {
    fn new(begin: Instant) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr())
                .with_style(style)
        });
        Self {
            begin,
            bar,
            speed: Speed::default(),
            said: begin,
        }
    }

    fn draw(&mut self, lanes: &[&Lane]) {
        let counts: Vec<Count> = lanes.iter().map(|lane| lane.count()).collect();
        let elapsed = self.begin.elapsed();
        self.speed.observe(&counts, elapsed);
        let left = self.speed.left(&counts, elapsed);
        let left = left.map_or_else(|| "estimating".to_owned(), share::described);
        let share = share::of(&counts, elapsed);
        let lines: Vec<_> = lanes.iter().filter_map(|lane| lane.line()).collect();
        match &self.bar {
            Some(bar) => {
                bar.set_position(share::thousandths(share));
                bar.set_message(format!("{left}\n  {}", lines.join("\n  ")));
            }
            None if self.said.elapsed() >= QUIET => {
                self.said = Instant::now();
                let elapsed = elapsed.as_secs();
                let percent = share::thousandths(share) / 10;
                eprintln!("[{elapsed:5} s] {percent:3} % {left}: {}", lines.join("; "));
            }
            None => {}
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_builds_run_and_their_times_are_returned() {
        let lanes = ["one", "two"].map(|what| Lane::new(what, "parts", 2, 1.0));
        let works: Vec<Work<'_, ()>> = lanes
            .iter()
            .map(|lane| -> Work<'_, ()> {
                (
                    lane,
                    Box::new(|| {
                        lane.advance("first");
                        Ok(())
                    }),
                )
            })
            .collect();
        let stages = run(works, || {}).unwrap();
        let mut names: Vec<_> = stages.iter().map(Stage::name).collect();
        names.sort_unstable();
        assert_eq!(names, ["one", "two"]);
        assert!(lanes.iter().all(|lane| lane.line().is_none()));
    }

    #[test]
    fn an_error_of_one_build_ends_the_others_and_is_returned() {
        let lanes = ["fails", "goes on"].map(|what| Lane::new(what, "parts", 1, 1.0));
        let (stop, stopped) = channel();
        let works: Vec<Work<'_, &str>> = vec![
            (&lanes[0], Box::new(|| Err("no compiler"))),
            (
                &lanes[1],
                Box::new(move || stopped.recv().map_err(|_| "nobody ended it")),
            ),
        ];
        let first = run(works, || stop.send(()).unwrap());
        assert_eq!(first.err(), Some("no compiler"));
    }
}
