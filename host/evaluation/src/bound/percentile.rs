//! Pure: lower bounds of the percentiles of waiting times and slowdowns.
//!
//! A job that waits for at most some seconds certainly runs from then on until its duration after
//! its arrival. If a percentile has a certain value, this holds for all jobs but those that the
//! percentile leaves out. At no moment can they use more IPUs than there are. The bound is the
//! lowest value for which this is possible.

use std::collections::BTreeMap;

use crate::jobs::Job;
use crate::statistics::float;

/// Halvings of the range of a bound: more than the printed digits need.
const HALVINGS: u32 = 50;

/// Returns a lower bound of a percentile of the waiting times, in seconds.
pub(crate) fn wait(jobs: &[&Job], percent: usize, ipus: u64) -> f64 {
    let longest = jobs.iter().map(|job| job.duration).max().unwrap_or(0);
    let possible = |wait: f64| is_possible(jobs, percent, ipus, |_| wait);
    lowest((0.0, float(longest)), possible)
}

/// Returns a lower bound of a percentile of the slowdowns. A shorter duration counts as `shortest`,
/// in seconds.
pub(crate) fn slowdown(jobs: &[&Job], percent: usize, ipus: u64, shortest: f64) -> f64 {
    let possible = |slowdown: f64| {
        let wait = |job: &Job| {
            let duration = float(job.duration);
            slowdown * duration.max(shortest) - duration
        };
        is_possible(jobs, percent, ipus, wait)
    };
    // A job with a slowdown of 2 waits for its duration, so nothing is certain.
    lowest((1.0, 2.0), possible)
}

/// Returns the lowest value of the range that is possible; the highest one is.
fn lowest((mut low, mut high): (f64, f64), is_possible: impl Fn(f64) -> bool) -> f64 {
    if is_possible(low) {
        return low;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if is_possible(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    low
}

/// Whether all jobs but those that the percentile leaves out can wait for at most `wait` seconds.
fn is_possible(jobs: &[&Job], percent: usize, ipus: u64, wait: impl Fn(&Job) -> f64) -> bool {
    let left_out = jobs.len() - (jobs.len() * percent).div_ceil(100);
    let mut changes = Vec::new();
    for job in jobs {
        let arrival = float(job.arrival);
        let (begin, end) = (arrival + wait(job), arrival + float(job.duration));
        if begin < end {
            changes.push((end, false, job.all_ipus()));
            changes.push((begin, true, job.all_ipus()));
        }
    }
    // Of changes at the same moment, ends come first.
    changes.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let mut running = Running::default();
    for (_, begins, size) in changes {
        running.change(size, begins);
        if running.ipus > ipus && running.ipus - running.largest(left_out) > ipus {
            return false;
        }
    }
    true
}

/// The jobs that certainly run.
#[derive(Debug, Default)]
struct Running {
    ipus: u64,
    /// Number of values of each size.
    sizes: BTreeMap<u64, usize>,
}

impl Running {
    /// A job of this size begins, or ends.
    fn change(&mut self, size: u64, begins: bool) {
        let count = self.sizes.entry(size).or_default();
        if begins {
            *count += 1;
            self.ipus += size;
        } else {
            *count -= 1;
            self.ipus -= size;
        }
    }

    /// Returns the IPUs of so many of the largest jobs.
    fn largest(&self, mut count: usize) -> u64 {
        let mut ipus = 0;
        for (&size, &jobs) in self.sizes.iter().rev() {
            let some = jobs.min(count);
            count -= some;
            ipus += size * some as u64;
        }
        ipus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(arrival: u64, ipus: u32, duration: u64) -> Job {
        Job {
            namespace: "a".into(),
            arrival,
            ipus,
            gang: 1,
            duration,
        }
    }

    #[test]
    fn jobs_that_certainly_run_at_the_same_time_need_ipus() {
        let three = vec![job(0, 8, 60), job(0, 8, 40), job(10, 8, 30)];
        let cases = [
            ("nothing", vec![], 99, 0.0),
            (
                "beside each other",
                vec![job(0, 4, 50), job(0, 4, 50)],
                99,
                0.0,
            ),
            (
                "the longer one waits",
                vec![job(0, 8, 50), job(0, 8, 20)],
                99,
                20.0,
            ),
            ("half may wait", vec![job(0, 8, 50), job(0, 8, 20)], 50, 0.0),
            (
                "one after the other",
                vec![job(0, 8, 50), job(50, 8, 20)],
                99,
                0.0,
            ),
            // Of three, each pair must not meet: the first two need 40.
            ("three", three.clone(), 99, 40.0),
            // Only one may be left out, so all three must not meet.
            ("two of three", three, 66, 30.0),
        ];
        for (name, jobs, percent, expected) in cases {
            let jobs: Vec<&Job> = jobs.iter().collect();
            let bound = wait(&jobs, percent, 8);
            assert!((bound - expected).abs() < 1e-6, "{name}: {bound}");
        }
    }

    #[test]
    fn a_slowdown_bounds_the_wait_of_each_job_by_its_duration() {
        let jobs = [job(0, 8, 50), job(0, 8, 20)];
        let jobs: Vec<&Job> = jobs.iter().collect();
        assert!((slowdown(&jobs, 99, 8, 10.0) - 1.4).abs() < 1e-6);
        assert!((slowdown(&jobs, 50, 8, 10.0) - 1.0).abs() < 1e-6);
        assert!((slowdown(&jobs, 99, 16, 10.0) - 1.0).abs() < 1e-6);
    }
}
