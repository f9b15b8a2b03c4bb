//! Pure: where IPU-hours went, summed up from IPUAccountings over whole periods, and the jobs of a
//! time.

mod csv;
mod jobs;
mod period;
mod text;

use std::collections::BTreeMap;

use clap::ValueEnum;
use ipu_api::accounting::{Accounting, AllocatedSeconds, Period, Unallocated};
use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::vipu_controller::VIPUController;
use jiff::Timestamp;
use serde::Serialize;

pub use self::csv::csv;
pub use self::jobs::{JobCollector, JobHistory};
pub use self::period::{Since, SinceError};
pub use self::text::text;

use crate::condition::shown;
use crate::controllers::{address, name};

/// Seconds of an hour.
const HOUR: f64 = 3_600.0;

/// Name of the row of the namespaces that the accounting of a V-IPU controller does not
/// distinguish.
const OTHER_NAMESPACES: &str = "(others)";

/// Grouping of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum GoodputBy {
    /// The namespace of the owner of partitions.
    #[default]
    Namespace,
    /// A V-IPU controller.
    Controller,
    /// State of the IPUs.
    State,
}

/// Use of IPU-hours.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Goodput {
    /// Grouping of the rows.
    pub by: GoodputBy,
    /// Start of the first counted period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Until when the last one is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// IPU-hours in partitions by namespace or V-IPU controller, those with the most first. By
    /// state: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    /// All IPU-hours in partitions of the operator.
    pub total: Row,
    /// IPU-hours in no partition of the operator, by V-IPU controller.
    pub unallocated: Vec<UnallocatedRow>,
    /// All of them.
    pub unallocated_total: UnallocatedRow,
    /// All IPU-hours by state.
    pub states: Vec<State>,
    /// Gaps of the figures.
    pub notes: Vec<String>,
}

/// IPU-hours in partitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The namespace or the V-IPU controller.
    pub name: String,
    /// A Pod of the owner was ready.
    pub running: f64,
    /// The V-IPU controller created the partition.
    pub forming: f64,
    /// No Pod of the owner had been ready yet.
    pub waiting_pods: f64,
    /// The partition was reset.
    pub resetting: f64,
    /// No Pod of the owner was ready any more.
    pub idle_allocated: f64,
    /// The partition was removed.
    pub releasing: f64,
    /// The sum.
    pub total: f64,
    /// Orchestration goodput: the part of the sum in which Pods were ready. Missing: the sum is
    /// zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<f64>,
}

/// IPU-hours in no partition of the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnallocatedRow {
    /// The V-IPU controller.
    pub name: String,
    /// Free, and large enough for a waiting request, or no request waited.
    pub free: f64,
    /// Free in blocks that were too small for each waiting request.
    pub stranded: f64,
    /// Of a V-IPU controller that did not answer, or in partitions in error.
    pub unhealthy: f64,
    /// In partitions that the operator did not create.
    pub others: f64,
    /// Not seen by the operator.
    pub unknown: f64,
}

/// IPU-hours in one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Its name in an IPUAccounting.
    pub state: &'static str,
    /// The IPU-hours.
    pub hours: f64,
    /// Their part of all IPU-hours.
    pub share: f64,
}

/// A V-IPU controller and its accounting.
#[derive(Clone, Debug, PartialEq)]
pub struct Accounted<'a> {
    /// `host:port`.
    pub name: String,
    /// Whether it has a VIPUController. The accounting of one that has left the list stays.
    pub is_listed: bool,
    /// Its accounting, once the operator has counted.
    pub accounting: Option<&'a Accounting>,
}

/// The VIPUControllers with the accountings of the same names, and then the other accountings.
pub fn accounted<'a>(
    controllers: &[VIPUController],
    records: &'a [IPUAccounting],
) -> Vec<Accounted<'a>> {
    let mut left: BTreeMap<_, _> = records
        .iter()
        .map(|record| (record.metadata.name.as_deref().unwrap_or_default(), record))
        .collect();
    let mut all = Vec::new();
    for controller in controllers {
        let accounting = left
            .remove(name(controller))
            .map(|record| &record.spec.accounting);
        all.push(Accounted {
            name: address(controller),
            is_listed: true,
            accounting,
        });
    }
    all.extend(left.into_values().map(|record| Accounted {
        name: shown(&record.spec.address),
        is_listed: false,
        accounting: Some(&record.spec.accounting),
    }));
    all
}

/// Sums up the IPU-hours since a time before `now`.
pub fn goodput(all: &[Accounted<'_>], since: Since, by: GoodputBy, now: Timestamp) -> Goodput {
    let mut sums = Sums::default();
    let mut notes = Vec::new();
    for one in all {
        let name = &one.name;
        let Some(accounting) = one.accounting else {
            notes.push(format!("{name} has no accounting yet and is not counted"));
            continue;
        };
        let periods = since.periods(accounting, now);
        let Some(start) = start(&periods, accounting) else {
            // A controller that has left for good is no gap.
            if one.is_listed {
                let until = accounting.until.0;
                notes.push(format!(
                    "{name} is not counted: its accounting ended at {until}"
                ));
            }
            continue;
        };
        sums.add(name, by, &periods);
        sums.covered.push((name.clone(), start, accounting.until.0));
    }
    let from = sums.covered.iter().map(|(_, start, _)| *start).min();
    let until = sums.covered.iter().map(|(_, _, until)| *until).max();
    notes.extend(sums.partly_covered(from, until));
    sums.report(by, (from, until), notes)
}

/// Returns the start of the first of the periods, or of the accounting in it.
fn start(periods: &[&Period], accounting: &Accounting) -> Option<Timestamp> {
    let first = periods.iter().map(|period| period.start.0).min()?;
    Some(first.max(accounting.since.0))
}

/// IPU-seconds.
#[derive(Default)]
struct Sums {
    rows: BTreeMap<String, AllocatedSeconds>,
    allocated: AllocatedSeconds,
    unallocated: BTreeMap<String, Unallocated>,
    /// Counted time of each V-IPU controller.
    covered: Vec<(String, Timestamp, Timestamp)>,
}

impl Sums {
    fn add(&mut self, controller: &str, by: GoodputBy, periods: &[&Period]) {
        let unallocated = self.unallocated.entry(controller.to_owned()).or_default();
        for period in periods {
            unallocated.add(&period.unallocated);
        }
        if by == GoodputBy::Controller {
            self.rows.entry(controller.to_owned()).or_default();
        }
        for one in periods.iter().flat_map(|period| &period.namespaces) {
            self.allocated.add(&one.seconds);
            let name = match by {
                GoodputBy::Namespace if one.namespace.is_empty() => OTHER_NAMESPACES.to_owned(),
                GoodputBy::Namespace => shown(&one.namespace),
                GoodputBy::Controller => controller.to_owned(),
                GoodputBy::State => continue,
            };
            self.rows.entry(name).or_default().add(&one.seconds);
        }
    }

    /// A note about each V-IPU controller of which less time is counted than of the others.
    fn partly_covered(&self, from: Option<Timestamp>, until: Option<Timestamp>) -> Vec<String> {
        let differ = self
            .covered
            .iter()
            .filter(|(_, start, end)| Some(*start) != from || late(*end, until));
        differ
            .map(|(name, start, end)| format!("{name} is counted from {start} until {end} only"))
            .collect()
    }

    fn report(
        self,
        by: GoodputBy,
        (from, until): (Option<Timestamp>, Option<Timestamp>),
        notes: Vec<String>,
    ) -> Goodput {
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .map(|(name, seconds)| row(name, seconds))
            .collect();
        rows.sort_by(|one, other| other.total.total_cmp(&one.total));
        let mut unallocated = Unallocated::default();
        for one in self.unallocated.values() {
            unallocated.add(one);
        }
        Goodput {
            by,
            from,
            until,
            rows,
            total: row("total", &self.allocated),
            unallocated: self
                .unallocated
                .iter()
                .map(|(name, seconds)| unallocated_row(name, seconds))
                .collect(),
            unallocated_total: unallocated_row("total", &unallocated),
            states: states(&self.allocated, &unallocated),
            notes,
        }
    }
}

/// Whether an accounting ends well before the others. Each is updated at its own time.
fn late(end: Timestamp, until: Option<Timestamp>) -> bool {
    let behind = until.map(|until| until.duration_since(end).as_secs());
    behind.is_some_and(|seconds| seconds > 600)
}

/// The states in partitions with their IPU-seconds, by their names in the accounting.
fn allocated_states(seconds: &AllocatedSeconds) -> [(&'static str, f64); 6] {
    [
        ("running", seconds.running),
        ("forming", seconds.forming),
        ("waitingPods", seconds.waiting_pods),
        ("resetting", seconds.resetting),
        ("idleAllocated", seconds.idle_allocated),
        ("releasing", seconds.releasing),
    ]
}

/// The other states in the same form.
fn unallocated_states(seconds: &Unallocated) -> [(&'static str, f64); 5] {
    [
        ("free", seconds.free),
        ("stranded", seconds.stranded),
        ("unhealthy", seconds.unhealthy),
        ("others", seconds.others),
        ("unknown", seconds.unknown),
    ]
}

/// IPU-hours with three digits: an accounting has whole seconds of IPUs.
fn hours(seconds: f64) -> f64 {
    (seconds / HOUR * 1_000.0).round() / 1_000.0
}

/// The part of a whole, with six digits.
fn part(seconds: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| (seconds / of * 1_000_000.0).round() / 1_000_000.0)
}

fn row(name: &str, seconds: &AllocatedSeconds) -> Row {
    Row {
        name: name.to_owned(),
        running: hours(seconds.running),
        forming: hours(seconds.forming),
        waiting_pods: hours(seconds.waiting_pods),
        resetting: hours(seconds.resetting),
        idle_allocated: hours(seconds.idle_allocated),
        releasing: hours(seconds.releasing),
        total: hours(seconds.total()),
        goodput: part(seconds.running, seconds.total()),
    }
}

fn unallocated_row(name: &str, seconds: &Unallocated) -> UnallocatedRow {
    UnallocatedRow {
        name: name.to_owned(),
        free: hours(seconds.free),
        stranded: hours(seconds.stranded),
        unhealthy: hours(seconds.unhealthy),
        others: hours(seconds.others),
        unknown: hours(seconds.unknown),
    }
}

fn states(allocated: &AllocatedSeconds, unallocated: &Unallocated) -> Vec<State> {
    let all = allocated.total() + unallocated.total();
    let states = allocated_states(allocated).into_iter();
    let states = states.chain(unallocated_states(unallocated));
    let states = states.map(|(state, seconds)| State {
        state,
        hours: hours(seconds),
        share: part(seconds, all).unwrap_or(0.0),
    });
    states.collect()
}

#[cfg(test)]
mod tests;
