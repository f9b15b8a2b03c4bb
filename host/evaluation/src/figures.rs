//! Pure: the figures of a replay, each beside its bound where one is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::bound;
use crate::controllers::{self, Controller};
use crate::jobs::Job;
use crate::replay::{Counts, Outcome, Replay};
use crate::statistics::{float, jain, mean, percentile};
use crate::timeline::Point;

/// Duration below which a job counts as one of this duration for its slowdown, in seconds:
/// otherwise jobs of a second would be all that counts.
const SLOWDOWN_BOUND: f64 = 10.0;

/// The replayed jobs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The jobs, in the order of their arrival.
    pub jobs: &'a [Job],
    /// The controllers.
    pub controllers: &'a [Controller],
    /// IPUs from which on a job counts as large.
    pub large: u64,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// From 0 to 1.
    Share,
    /// IPUs.
    Ipus,
    /// Seconds.
    Seconds,
    /// A ratio of times.
    Ratio,
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figure {
    /// Its name, for programs.
    pub name: &'static str,
    /// Its name, for users.
    #[serde(skip)]
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its value. `None` if there is nothing that it could count.
    pub value: Option<f64>,
    /// Bound that no policy can surpass. `None` if no bound is known.
    pub bound: Option<f64>,
    /// The distance between both.
    pub gap: Option<f64>,
}

/// The jobs of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceFigures {
    /// Its name.
    pub name: String,
    /// Jobs that ran.
    pub jobs: u64,
    /// Their IPU-seconds.
    pub ipu_seconds: f64,
    /// Their mean waiting time, in seconds.
    pub wait_mean: f64,
    /// Their mean bounded slowdown.
    pub bounded_slowdown: f64,
}

/// All figures of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Jobs that ran.
    pub ran: usize,
    /// Jobs that were rejected.
    pub rejected: usize,
    /// Jobs that never got their partitions.
    pub waiting: usize,
    /// Large jobs that ran.
    pub large: usize,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The figures of each namespace.
    pub namespaces: Vec<NamespaceFigures>,
    /// Counts of the replay.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A job that ran.
struct Run<'a> {
    job: &'a Job,
    started: u64,
}

impl Run<'_> {
    fn wait(&self) -> f64 {
        float(self.started - self.job.arrival)
    }

    fn slowdown(&self) -> f64 {
        let bounded = float(self.job.duration).max(SLOWDOWN_BOUND);
        ((self.wait() + float(self.job.duration)) / bounded).max(1.0)
    }
}

/// Returns the figures of a replay.
pub fn figures(input: Input<'_>, replay: &Replay) -> Figures {
    let runs = runs(input.jobs, &replay.outcomes);
    let is_rejected = |outcome: &&Outcome| matches!(outcome, Outcome::Rejected(_));
    let rejected = replay.outcomes.iter().filter(is_rejected).count();
    let large = runs.iter().filter(|run| run.job.all_ipus() >= input.large);
    Figures {
        ran: runs.len(),
        rejected,
        waiting: replay.outcomes.len() - runs.len() - rejected,
        large: large.count(),
        namespaces: namespaces(&runs),
        figures: all(input, &runs, replay),
        counts: replay.counts.clone(),
    }
}

fn runs<'a>(jobs: &'a [Job], outcomes: &[Outcome]) -> Vec<Run<'a>> {
    let runs = jobs.iter().zip(outcomes).filter_map(|(job, outcome)| {
        let &Outcome::Ran { started } = outcome else {
            return None;
        };
        Some(Run { job, started })
    });
    runs.collect()
}

fn all(input: Input<'_>, runs: &[Run<'_>], replay: &Replay) -> Vec<Figure> {
    let mut figures = of_capacity(input, runs, replay);
    figures.extend(of_waits(input, runs));
    figures.extend(of_slowdowns(input, runs));
    let slowdowns = namespaces(runs).into_iter().map(|one| one.bounded_slowdown);
    let slowdowns: Vec<_> = slowdowns.collect();
    figures.push(figure(
        ("fairness", "fairness of namespaces"),
        Unit::Share,
        jain(&slowdowns),
        Some(1.0),
    ));
    // A policy that leaves jobs out could surpass the bounds: they hold for all jobs that fit.
    let fitting = input.jobs.iter().filter(|job| job.fits(input.controllers));
    if runs.len() != fitting.count() {
        for figure in &mut figures {
            (figure.bound, figure.gap) = (None, None);
        }
    }
    figures
}

/// The figures of IPUs.
fn of_capacity(input: Input<'_>, runs: &[Run<'_>], replay: &Replay) -> Vec<Figure> {
    let jobs: Vec<&Job> = runs.iter().map(|run| run.job).collect();
    let ipus = float(controllers::capacity(input.controllers));
    let first = jobs.first().map_or(0, |job| job.arrival);
    let last_arrival = jobs.last().map_or(0, |job| job.arrival);
    let ends = runs.iter().map(|run| run.started + run.job.duration);
    let last_end = ends.max();
    let least_end = bound::last_end(&jobs, input.controllers);
    let timeline = &replay.timeline;
    let running = |point: &Point| float(point.running) / ipus;
    // The last jobs of a trace may run for months, alone: the time after the last arrival would be
    // all that counts.
    let (until, least_until) = if last_arrival > first {
        (Some(last_arrival), last_arrival)
    } else {
        (last_end, least_end)
    };
    let allocation = until.map(|until| timeline.sampled((first, until), 1, running)[0]);
    let seconds = |end: u64| float(end.saturating_sub(first));
    let most = bound::work_until(&jobs, least_until) / (ipus * seconds(least_until));
    vec![
        figure(
            ("allocation", "allocation"),
            Unit::Share,
            allocation,
            allocation.map(|_| most.min(1.0)),
        ),
        figure(
            ("saturatedAllocation", "  while a job waits"),
            Unit::Share,
            timeline.mean(|point| point.waiting > 0, running),
            Some(1.0),
        ),
        figure(
            ("fragmentation", "fragmentation"),
            Unit::Ipus,
            timeline.mean(|_| true, |point| point.fragmentation),
            timeline.mean(|_| true, |point| point.least_fragmentation),
        ),
        figure(
            ("lastEnd", "end of the last job"),
            Unit::Seconds,
            last_end.map(seconds),
            last_end.map(|_| bound::least_end(&jobs, input.controllers) - float(first)),
        ),
    ]
}

/// The figures of waiting times.
fn of_waits(input: Input<'_>, runs: &[Run<'_>]) -> Vec<Figure> {
    let jobs: Vec<&Job> = runs.iter().map(|run| run.job).collect();
    let ipus = controllers::capacity(input.controllers);
    let is_large = |job: &Job| job.all_ipus() >= input.large;
    let large_jobs: Vec<&Job> = jobs.iter().copied().filter(|&job| is_large(job)).collect();
    let waits = sorted(runs.iter().map(Run::wait));
    let large = runs.iter().filter(|run| is_large(run.job));
    let large = sorted(large.map(Run::wait));
    let least = bound::least_wait(&jobs, |_| 1.0, input.controllers) / float(waits.len() as u64);
    let of_large = |job: &Job| if is_large(job) { 1.0 } else { 0.0 };
    let least_large = bound::least_wait(&jobs, of_large, input.controllers);
    let least_large = least_large / float(large.len() as u64);
    let seconds = |names, value, bound| figure(names, Unit::Seconds, value, bound);
    let at = |names, waits: &[f64], jobs: &[&Job], percent| {
        let value = percentile(waits, percent);
        let bound = value.map(|_| bound::percentile::wait(jobs, percent, ipus));
        figure(names, Unit::Seconds, value, bound)
    };
    let (all_mean, large_mean) = (mean(&waits), mean(&large));
    vec![
        seconds(
            ("waitMean", "wait, mean"),
            all_mean,
            all_mean.map(|_| least),
        ),
        at(("waitP50", "wait, p50"), &waits, &jobs, 50),
        at(("waitP99", "wait, p99"), &waits, &jobs, 99),
        seconds(
            ("largeWaitMean", "wait of large jobs, mean"),
            large_mean,
            large_mean.map(|_| least_large),
        ),
        at(
            ("largeWaitP99", "wait of large jobs, p99"),
            &large,
            &large_jobs,
            99,
        ),
    ]
}

/// The figures of slowdowns: the time from arrival to end, for each second of the duration.
fn of_slowdowns(input: Input<'_>, runs: &[Run<'_>]) -> Vec<Figure> {
    let jobs: Vec<&Job> = runs.iter().map(|run| run.job).collect();
    let ipus = controllers::capacity(input.controllers);
    let slowdowns = sorted(runs.iter().map(Run::slowdown));
    let weight = |job: &Job| 1.0 / float(job.duration).max(SLOWDOWN_BOUND);
    let running = jobs.iter().map(|job| float(job.duration) * weight(job));
    let sum = bound::least_wait(&jobs, weight, input.controllers) + running.sum::<f64>();
    let least = (sum / float(slowdowns.len() as u64)).max(1.0);
    let (mean, p99) = (mean(&slowdowns), percentile(&slowdowns, 99));
    vec![
        figure(
            ("boundedSlowdownMean", "bounded slowdown, mean"),
            Unit::Ratio,
            mean,
            mean.map(|_| least),
        ),
        figure(
            ("boundedSlowdownP99", "bounded slowdown, p99"),
            Unit::Ratio,
            p99,
            p99.map(|_| bound::percentile::slowdown(&jobs, 99, ipus, SLOWDOWN_BOUND)),
        ),
    ]
}

fn figure(
    (name, label): (&'static str, &'static str),
    unit: Unit,
    value: Option<f64>,
    bound: Option<f64>,
) -> Figure {
    Figure {
        name,
        label,
        unit,
        value,
        bound,
        gap: value.zip(bound).map(|(value, bound)| (value - bound).abs()),
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn namespaces(runs: &[Run<'_>]) -> Vec<NamespaceFigures> {
    let mut namespaces: BTreeMap<&Arc<str>, Vec<&Run<'_>>> = BTreeMap::new();
    for run in runs {
        namespaces.entry(&run.job.namespace).or_default().push(run);
    }
    let each = namespaces.into_iter().map(|(name, runs)| {
        let waits: Vec<f64> = runs.iter().map(|run| run.wait()).collect();
        let slowdowns: Vec<f64> = runs.iter().map(|run| run.slowdown()).collect();
        NamespaceFigures {
            name: name.to_string(),
            jobs: runs.len() as u64,
            ipu_seconds: float(runs.iter().map(|run| run.job.work()).sum::<u128>()),
            wait_mean: mean(&waits).unwrap_or_default(),
            bounded_slowdown: mean(&slowdowns).unwrap_or_default(),
        }
    });
    each.collect()
}

#[cfg(test)]
mod tests;
