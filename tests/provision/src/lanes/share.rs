//! Pure: how much of several builds is done, and how long the rest will take.

use std::time::Duration;

/// Time after which the parts that a cache had are counted: they pass at once, and say nothing
/// about the speed.
const CACHED: Duration = Duration::from_secs(6);
/// The largest share of a timed build before its end.
const ALMOST: f64 = 0.9;
/// Processor time that one second of work does at least, in seconds: half of a core.
const SLOWEST: f64 = 0.5;
/// Time before which there is no estimate.
const FIRST: Duration = Duration::from_secs(20);

/// The parts of one build.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Count {
    pub(super) done: usize,
    pub(super) total: usize,
    /// Processor time of all parts, in seconds, if no cache has any of them.
    pub(super) seconds: f64,
    /// Whether the parts are so few that the time since the begin says more than their number.
    pub(super) is_timed: bool,
}

impl Count {
    fn share(self, elapsed: Duration) -> f64 {
        if self.done >= self.total {
            return 1.0;
        }
        let counted = as_f64(self.done) / as_f64(self.total);
        if self.is_timed {
            let timed = elapsed.as_secs_f64() / self.seconds;
            return counted.max(timed.min(ALMOST));
        }
        counted
    }
}

/// The share of all builds that is done, from 0 to 1, at a time since their begin.
pub(super) fn of(counts: &[Count], elapsed: Duration) -> f64 {
    let whole: f64 = counts.iter().map(|count| count.seconds).sum();
    if whole > 0.0 {
        done(counts, elapsed) / whole
    } else {
        1.0
    }
}

/// The same in thousandths, for a bar.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is between 0 and 1"
)]
pub(super) fn thousandths(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 1000.0) as u64
}

/// The speed of the work so far.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// The time of the first observation that counts, and the processor time that was done then.
    first: Option<(Duration, f64)>,
}

impl Speed {
    /// Notes the state of the builds at a time since their begin.
    pub(super) fn observe(&mut self, counts: &[Count], elapsed: Duration) {
        if elapsed >= CACHED && self.first.is_none() {
            self.first = Some((elapsed, done(counts, elapsed)));
        }
    }

    /// The time that is left if the work goes on as fast as so far. `None` until something is
    /// known.
    pub(super) fn left(&self, counts: &[Count], elapsed: Duration) -> Option<Duration> {
        let (since, before) = self.first.filter(|_| elapsed >= FIRST)?;
        let done = done(counts, elapsed);
        let speed = (done - before) / elapsed.saturating_sub(since).as_secs_f64();
        let rest = counts.iter().map(|count| count.seconds).sum::<f64>() - done;
        Some(Duration::from_secs_f64(rest.max(0.0) / speed.max(SLOWEST)))
    }
}

/// The estimate in words: no more exact than it is.
pub(super) fn described(left: Duration) -> String {
    match left.as_secs() {
        0..60 => "less than a minute left".to_owned(),
        seconds => format!("about {} min left", (seconds + 30) / 60),
    }
}

fn done(counts: &[Count], elapsed: Duration) -> f64 {
    let parts = counts.iter();
    parts
        .map(|count| count.seconds * count.share(elapsed))
        .sum()
}

#[expect(clippy::cast_precision_loss, reason = "counts of crates are small")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(10);

    fn counts(crates: usize, packages: usize) -> [Count; 2] {
        let count = |done, total, seconds| Count {
            done,
            total,
            seconds,
            is_timed: false,
        };
        [count(crates, 600, 300.0), count(packages, 3000, 900.0)]
    }

    #[test]
    fn a_build_counts_by_its_processor_time() {
        let share = |counts: &[Count]| thousandths(of(counts, NOW));
        assert_eq!(share(&counts(0, 0)), 0);
        assert_eq!(share(&counts(600, 0)), 250);
        assert_eq!(share(&counts(600, 1500)), 625);
        assert_eq!(share(&counts(600, 3000)), 1000);
        assert_eq!(share(&[]), 1000, "nothing to do is done");
    }

    #[test]
    fn a_build_of_few_parts_counts_by_its_time_until_it_ends() {
        let image = |done| Count {
            done,
            total: 1,
            seconds: 40.0,
            is_timed: true,
        };
        for (seconds, expected) in [(0, 0), (10, 250), (400, 900)] {
            let elapsed = Duration::from_secs(seconds);
            assert_eq!(thousandths(of(&[image(0)], elapsed)), expected);
        }
        assert_eq!(thousandths(of(&[image(1)], NOW)), 1000);
    }

    #[test]
    fn the_rest_takes_as_long_as_the_same_work_has_taken() {
        let mut speed = Speed::default();
        let seconds = Duration::from_secs;
        speed.observe(&counts(0, 0), seconds(0));
        assert_eq!(speed.left(&counts(0, 0), seconds(5)), None);
        // A cache had half of the crates.
        speed.observe(&counts(300, 0), seconds(10));
        assert_eq!(speed.left(&counts(300, 30), seconds(15)), None, "too early");
        // 210 seconds of 1050 in 110 seconds.
        assert_eq!(
            speed.left(&counts(420, 500), seconds(120)),
            Some(seconds(440))
        );
        // Nothing happens: half of a core is assumed.
        assert_eq!(
            speed.left(&counts(300, 0), seconds(1000)),
            Some(seconds(2100))
        );
    }

    #[test]
    fn an_estimate_is_said_in_minutes() {
        assert_eq!(
            described(Duration::from_secs(59)),
            "less than a minute left"
        );
        assert_eq!(described(Duration::from_secs(89)), "about 1 min left");
        assert_eq!(described(Duration::from_mins(10)), "about 10 min left");
    }
}
