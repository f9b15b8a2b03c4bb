//! Pure: what no policy can surpass: an exact optimum for small instances, and relaxations, in
//! which IPUs count and their places do not.
//!
//! The relaxations are no solutions: an exact optimum may be worse than its bound, and never
//! better. A gap is therefore the most that a better policy could gain.

pub(crate) mod percentile;

use std::collections::{BTreeSet, BinaryHeap};

use crate::controllers::{self, Controller};
use crate::jobs::Job;
use crate::optimum;
use crate::statistics::float;

/// Returns the lowest possible sum of all waiting times, each multiplied with the weight of its
/// job, or a lower bound if the instance is too large for an exact solution.
pub(crate) fn least_wait(
    jobs: &[&Job],
    weight: impl Fn(&Job) -> f64,
    controllers: &[Controller],
) -> f64 {
    let optimum = optimum::weighted_wait(jobs, &weight, controllers);
    optimum.unwrap_or_else(|| weighted_wait(jobs, &weight, controllers::capacity(controllers)))
}

/// Returns the earliest possible end of the last job, or a lower bound, as above.
pub(crate) fn least_end(jobs: &[&Job], controllers: &[Controller]) -> f64 {
    let optimum = optimum::last_end(jobs, controllers);
    optimum.unwrap_or_else(|| float(last_end(jobs, controllers)))
}

/// Returns a second before which the last job cannot end: each job runs for its duration after its
/// arrival, and for each partition size, the jobs of at least this size cannot use more IPUs than
/// the controllers have in blocks of it.
pub(crate) fn last_end(jobs: &[&Job], controllers: &[Controller]) -> u64 {
    let alone = jobs
        .iter()
        .map(|job| job.arrival.saturating_add(job.duration));
    let alone = alone.max().unwrap_or(0);
    let sizes: BTreeSet<u32> = jobs.iter().map(|job| job.ipus).collect();
    let together = sizes.into_iter().map(|size| {
        let blocks = controllers.iter().map(|one| one.ipus / size * size);
        let ipus = blocks.map(u128::from).sum::<u128>().max(1);
        let mut work = 0;
        let mut latest = 0;
        // From the last arrival back: the work of all later jobs follows this arrival.
        for job in jobs.iter().rev().filter(|job| job.ipus >= size) {
            work += job.work();
            let seconds = u64::try_from(work.div_ceil(ipus)).unwrap_or(u64::MAX);
            latest = latest.max(job.arrival.saturating_add(seconds));
        }
        latest
    });
    together.fold(alone, u64::max)
}

/// Returns the most IPU-seconds that the jobs can have used until this second: each runs from its
/// arrival on.
pub(crate) fn work_until(jobs: &[&Job], until: u64) -> f64 {
    let work = jobs.iter().map(|job| {
        let ran = until.saturating_sub(job.arrival).min(job.duration);
        u128::from(job.all_ipus()) * u128::from(ran)
    });
    float(work.sum::<u128>())
}

/// Returns a lower bound of the sum of all waiting times, each multiplied with the weight of its
/// job.
///
/// In the relaxation, a job may be interrupted and spread over all IPUs at any time. Then it is
/// optimal to work on the job with the largest weight for its work, and the mean moment of a job's
/// work is as early as it can be. A real job works at a constant rate, so this moment is half of
/// its duration after its start (Goemans, "Improved approximation algorithms for scheduling with
/// release dates", 1997).
pub(crate) fn weighted_wait(jobs: &[&Job], weight: impl Fn(&Job) -> f64, ipus: u64) -> f64 {
    let rate = float(ipus.max(1));
    let weighted = jobs.iter().map(|job| (*job, weight(job)));
    let weighted = weighted.filter(|(_, weight)| *weight > 0.0);
    let mut arrivals = weighted.peekable();
    let mut open: BinaryHeap<Open> = BinaryHeap::new();
    let (mut now, mut sum) = (0.0, 0.0);
    loop {
        while let Some((job, weight)) = arrivals.next_if(|(job, _)| float(job.arrival) <= now) {
            let work = float(job.work());
            sum -= weight * (float(job.arrival) + float(job.duration) / 2.0);
            open.push(Open {
                density: weight / work,
                left: work,
            });
        }
        let next = arrivals.peek().map(|(job, _)| float(job.arrival));
        let Some(mut first) = open.pop() else {
            let Some(next) = next else { break };
            now = next;
            continue;
        };
        let end = now + first.left / rate;
        let until = next.map_or(end, |next| next.min(end));
        let done = (until - now) * rate;
        sum += first.density * done * f64::midpoint(now, until);
        if until < end {
            first.left -= done;
            open.push(first);
        }
        now = until;
    }
    sum.max(0.0)
}

/// A job of the relaxation that has arrived.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Its weight for each IPU-second.
    density: f64,
    /// IPU-seconds that are left.
    left: f64,
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Open {}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Open {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_left = || other.left.total_cmp(&self.left);
        self.density.total_cmp(&other.density).then_with(by_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{controllers, job};

    #[test]
    fn the_last_end_counts_work_arrivals_and_blocks() {
        let cases = [
            ("nothing", vec![], &[8][..], 0),
            ("alone", vec![job(5, (1, 1), 100)], &[8], 105),
            (
                "work",
                vec![job(0, (1, 8), 50), job(1, (1, 8), 50)],
                &[8],
                100,
            ),
            (
                "work after an arrival",
                vec![job(0, (1, 1), 1), job(90, (1, 8), 50), job(90, (1, 4), 10)],
                &[8],
                145,
            ),
            ("a gang", vec![job(0, (4, 4), 50)], &[8, 8], 50),
            // Of 24 IPUs only 16 can be in partitions of 16.
            (
                "blocks",
                vec![job(0, (1, 16), 50), job(0, (1, 16), 50)],
                &[24],
                100,
            ),
        ];
        for (name, jobs, ipus, expected) in cases {
            let jobs: Vec<_> = jobs.iter().collect();
            assert_eq!(last_end(&jobs, &controllers(ipus)), expected, "{name}");
        }
    }

    #[test]
    fn the_wait_of_jobs_that_use_all_ipus_is_exact() {
        // Each uses the whole controller, so the relaxation is the problem itself: the shorter one
        // first.
        let cases = [
            (vec![job(0, (1, 8), 50), job(0, (1, 8), 20)], 20.0),
            (vec![job(0, (1, 8), 20), job(20, (1, 8), 50)], 0.0),
            (
                vec![job(0, (1, 8), 30), job(0, (1, 8), 10), job(0, (1, 8), 20)],
                10.0 + 30.0,
            ),
            // Two that fit beside each other need not wait.
            (vec![job(0, (1, 4), 50), job(0, (1, 4), 50)], 0.0),
            (vec![], 0.0),
        ];
        for (jobs, expected) in cases {
            let jobs: Vec<_> = jobs.iter().collect();
            let bound = weighted_wait(&jobs, |_| 1.0, 8);
            assert!((bound - expected).abs() < 1e-6, "{bound}: {jobs:?}");
        }
    }

    #[test]
    fn work_is_counted_from_the_arrival_on() {
        let jobs = [job(0, (2, 4), 50), job(30, (1, 1), 50)];
        let jobs: Vec<_> = jobs.iter().collect();
        for (until, expected) in [(0, 0.0), (20, 160.0), (40, 330.0), (500, 450.0)] {
            let work = work_until(&jobs, until);
            assert!((work - expected).abs() < 1e-9, "{until}: {work}");
        }
    }

    #[test]
    fn jobs_without_weight_do_not_count() {
        let jobs = [job(0, (1, 8), 50), job(0, (1, 8), 50), job(0, (1, 1), 50)];
        let jobs: Vec<_> = jobs.iter().collect();
        let large = |job: &Job| if job.ipus == 8 { 1.0 } else { 0.0 };
        assert!((weighted_wait(&jobs, large, 8) - 50.0).abs() < 1e-6);
    }
}
