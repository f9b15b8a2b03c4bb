//! Pure: numbers of the cluster over the last day, as far as this process has seen it. The API
//! server has no history of them.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// Time between two samples.
pub const PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// Most time between two samples of one run. A machine that was suspended has seen nothing
/// meanwhile.
const GAP_MAX: SignedDuration = SignedDuration::from_secs(30);

/// Age from which on nothing is kept.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Most runs, so that memory and pictures have bounds: one a minute.
const RUNS_MAX: usize = 1_440;

/// Numbers of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Requests that wait.
    pub waiting: usize,
    /// V-IPU controllers, nodes and partitions that need somebody.
    pub attention: usize,
}

/// A time in which the numbers were the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// The first sample.
    pub from: Timestamp,
    /// The last sample.
    pub until: Timestamp,
    /// The numbers.
    #[serde(flatten)]
    pub sample: Sample,
}

/// The runs of the last day, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Past {
    runs: VecDeque<Run>,
}

impl Past {
    /// Adds the numbers of this moment.
    pub fn record(&mut self, now: Timestamp, sample: Sample) {
        while self
            .runs
            .front()
            .is_some_and(|run| now.duration_since(run.until) > DAY)
        {
            self.runs.pop_front();
        }
        if self.runs.len() >= RUNS_MAX {
            self.runs.pop_front();
        }
        match self.runs.back_mut() {
            Some(last) if now.duration_since(last.until) <= GAP_MAX => {
                last.until = now;
                if last.sample != sample {
                    self.start(now, sample);
                }
            }
            _ => self.start(now, sample),
        }
    }

    /// The runs, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter()
    }

    fn start(&mut self, now: Timestamp, sample: Sample) {
        self.runs.push_back(Run {
            from: now,
            until: now,
            sample,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(waiting: usize) -> Sample {
        Sample {
            waiting,
            attention: 0,
        }
    }

    /// Seconds of the beginning and the end of each run, and its requests.
    fn runs(past: &Past) -> Vec<(i64, i64, usize)> {
        let run = |run: &Run| {
            let (from, until) = (run.from.as_second(), run.until.as_second());
            (from, until, run.sample.waiting)
        };
        past.runs().map(run).collect()
    }

    fn recorded(samples: &[(i64, usize)]) -> Past {
        let mut past = Past::default();
        for (second, waiting) in samples {
            past.record(Timestamp::from_second(*second).unwrap(), sample(*waiting));
        }
        past
    }

    #[test]
    fn equal_samples_are_one_run_and_a_gap_is_a_gap() {
        let past = recorded(&[(0, 1), (10, 1), (20, 2), (30, 2), (100, 2), (110, 0)]);
        let expected = [(0, 20, 1), (20, 30, 2), (100, 110, 2), (110, 110, 0)];
        assert_eq!(runs(&past), expected);
    }

    #[test]
    fn only_the_last_day_is_kept_and_its_runs_are_bounded() {
        let day = 86_400;
        let past = recorded(&[(0, 1), (50, 2), (day + 20, 3)]);
        assert_eq!(runs(&past), [(50, 50, 2), (day + 20, day + 20, 3)]);
        let many: Vec<_> = (0..2_000).zip(0..).collect();
        let past = recorded(&many);
        assert_eq!(past.runs().count(), RUNS_MAX);
        assert_eq!(past.runs().last().unwrap().sample.waiting, 1_999);
    }
}
