//! Pure: the state of the controllers over virtual time, and its means.

use crate::statistics::float;

/// The state from one moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Start, in seconds.
    pub at: u64,
    /// IPUs of the jobs that run.
    pub running: u64,
    /// IPUs that jobs wait for.
    pub waiting: u64,
    /// Free IPUs that a partition of the mix cannot use.
    pub fragmentation: f64,
    /// The same if all free IPUs were adjacent.
    pub least_fragmentation: f64,
}

/// The states of a replay, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline(Vec<Point>);

impl Timeline {
    /// Adds a state. A later one of the same moment replaces it, and one that changes nothing is
    /// left out.
    pub(crate) fn add(&mut self, point: Point) {
        match self.0.last_mut() {
            Some(last) if last.at == point.at => *last = point,
            Some(last)
                if (Point {
                    at: point.at,
                    ..*last
                }) == point => {}
            _ => self.0.push(point),
        }
    }

    /// Returns when the first state begins, and when the last one does.
    pub fn span(&self) -> (u64, u64) {
        let first = self.0.first().map_or(0, |point| point.at);
        (first, self.0.last().map_or(0, |point| point.at))
    }

    /// Returns the mean of a value over the time in which the state meets a condition. `None` if
    /// there is no such time.
    pub(crate) fn mean(
        &self,
        is_counted: impl Fn(&Point) -> bool,
        value: impl Fn(&Point) -> f64,
    ) -> Option<f64> {
        let (mut sum, mut seconds) = (0.0, 0.0);
        for pair in self.0.windows(2) {
            if is_counted(&pair[0]) {
                let lasted = float(pair[1].at - pair[0].at);
                sum += value(&pair[0]) * lasted;
                seconds += lasted;
            }
        }
        (seconds > 0.0).then(|| sum / seconds)
    }

    /// Returns the means of a value over equal parts of the time from `from` to `to`.
    pub(crate) fn sampled(
        &self,
        (from, to): (u64, u64),
        parts: u32,
        value: impl Fn(&Point) -> f64,
    ) -> Vec<f64> {
        let width = float(to.saturating_sub(from)) / f64::from(parts.max(1));
        let mut index = 0;
        let part = |part: u32| {
            let begin = float(from) + width * f64::from(part);
            let end = begin + width;
            let mut sum = 0.0;
            while let Some(point) = self.0.get(index) {
                let next = self
                    .0
                    .get(index + 1)
                    .map_or(f64::MAX, |next| float(next.at));
                let lasted = next.min(end) - float(point.at).max(begin);
                sum += value(point) * lasted.max(0.0);
                if next > end {
                    break;
                }
                index += 1;
            }
            if width > 0.0 { sum / width } else { 0.0 }
        };
        (0..parts).map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(states: &[(u64, u64, u64)]) -> Timeline {
        let mut timeline = Timeline::default();
        for &(at, running, waiting) in states {
            timeline.add(Point {
                at,
                running,
                waiting,
                ..Point::default()
            });
        }
        timeline
    }

    #[test]
    fn a_mean_is_weighted_by_time() {
        let timeline = timeline(&[(0, 9, 9), (0, 4, 0), (10, 8, 2), (30, 0, 0), (40, 0, 0)]);
        assert_eq!(timeline.span(), (0, 30));
        let running = |point: &Point| float(point.running);
        assert_eq!(timeline.mean(|_| true, running), Some(200.0 / 30.0));
        assert_eq!(timeline.mean(|point| point.waiting > 0, running), Some(8.0));
        assert_eq!(timeline.mean(|point| point.waiting > 5, running), None);
    }

    #[test]
    fn parts_have_their_own_means() {
        let timeline = timeline(&[(0, 4, 0), (10, 8, 0), (30, 0, 0)]);
        let running = |point: &Point| float(point.running);
        assert_eq!(timeline.sampled((0, 40), 2, running), [6.0, 4.0]);
        assert_eq!(timeline.sampled((0, 40), 4, running), [4.0, 8.0, 8.0, 0.0]);
        assert_eq!(timeline.sampled((0, 0), 2, running), [0.0, 0.0]);
    }
}
