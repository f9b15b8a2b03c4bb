//! Jobs by phase, how long they wait, and how often they start again.

pub mod milestones;
pub mod phases;

use std::sync::Arc;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_runtime::metrics;
use ipu_runtime::work_queue::metrics::Reconciles;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use self::milestones::milestones;
use self::phases::JobPhases;
use crate::raw::RawJob;

/// Bounds of the buckets, in seconds: from a free controller to a queue of a day.
const BUCKETS: [f64; 13] = [
    0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0,
];

/// Most characters of an exemplar, names and values together, by OpenMetrics.
const EXEMPLAR_MAX: usize = 128;

/// The metrics of the job reconciler.
#[derive(Clone, Debug, Default)]
pub struct JobMetrics {
    /// Starts, restarts and ends of jobs.
    pub jobs: Jobs,
    /// Reconciles of jobs.
    pub reconciles: Reconciles,
}

/// Metrics of jobs. Clones share the values.
#[derive(Clone, Debug)]
pub struct Jobs {
    phases: Arc<Mutex<JobPhases>>,
    to_partition: DurationHistogram,
    to_running: DurationHistogram,
    restarts: Counter,
    finished: Family<[(&'static str, &'static str); 1], Counter>,
    listed: Family<[(&'static str, String); 1], Gauge>,
}

type DurationHistogram = HistogramWithExemplars<Exemplar>;

/// A job by its name.
type Exemplar = [(&'static str, String); 2];

impl Default for Jobs {
    fn default() -> Self {
        Self {
            phases: Arc::default(),
            to_partition: DurationHistogram::new(BUCKETS.into_iter()),
            to_running: DurationHistogram::new(BUCKETS.into_iter()),
            restarts: Counter::default(),
            finished: Family::default(),
            listed: Family::default(),
        }
    }
}

/// Guard of the watch of jobs. Its drop resets the gauges.
#[derive(Debug)]
pub struct WatchGuard(Jobs);

impl Jobs {
    /// Starts to count jobs by phase. When this replica stops watching them, it counts none.
    pub fn watching(&self) -> WatchGuard {
        WatchGuard(self.clone())
    }

    /// Whether the first list of a kind is complete. No job is reconciled before it is.
    pub fn listed(&self, kind: &str, complete: bool) {
        let kind = [("kind", kind.to_owned())];
        self.listed.get_or_create(&kind).set(complete.into());
    }

    /// Applies an event of the watch of all jobs.
    pub fn apply_event(&self, event: &Event<RawJob>) {
        self.phases.lock().apply_event(event);
    }

    /// Records that the status `new` replaced `old`. One process writes it once, so no milestone is
    /// counted twice, even after a restart of the operator. Returns whether the job runs for the
    /// first time.
    pub fn record_status(
        &self,
        job: &RawJob,
        old: &IPUJobStatus,
        new: &IPUJobStatus,
        now: Timestamp,
    ) -> bool {
        let created = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let passed = milestones(old, new, created, now);
        if let Some(waited) = passed.to_partition {
            self.to_partition.observe(waited, exemplar(job), None);
        }
        if let Some(waited) = passed.to_running {
            self.to_running.observe(waited, exemplar(job), None);
        }
        self.restarts.inc_by(passed.restarts);
        if let Some(phase) = passed.finished {
            self.finished.get_or_create(&[("phase", phase)]).inc();
        }
        passed.to_running.is_some()
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "job_time_to_partition",
            "Time from the creation of a job until all of its partitions were ready for the first time",
            Unit::Seconds,
            self.to_partition.clone(),
        );
        registry.register_with_unit(
            "job_time_to_running",
            "Time from the creation of a job until it ran for the first time",
            Unit::Seconds,
            self.to_running.clone(),
        );
        registry.register(
            "job_restarts",
            "Runs of jobs that were started again",
            self.restarts.clone(),
        );
        registry.register(
            "jobs_finished",
            "Jobs that have finished, by phase",
            self.finished.clone(),
        );
        registry.register(
            "watch_listed",
            "Whether the first list of a kind is complete on the replica that reconciles jobs: 1 or 0",
            self.listed.clone(),
        );
    }

    /// Registers the gauges that are read at each scrape.
    pub fn expose(&self, now: &mut Registry) {
        let jobs: Family<[(&str, &str); 1], Gauge> = Family::default();
        for (phase, count) in self.phases.lock().counts() {
            jobs.get_or_create(&[("phase", phase)])
                .set(metrics::count(count));
        }
        now.register("jobs", "IPUJobs, by phase", jobs);
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        *self.0.phases.lock() = JobPhases::default();
        self.0.listed.clear();
    }
}

fn exemplar(job: &RawJob) -> Option<Exemplar> {
    let exemplar = [
        ("namespace", job.namespace().unwrap_or_default()),
        ("job", job.name_any()),
    ];
    let length = exemplar
        .iter()
        .map(|(name, value)| name.len() + value.len());
    (length.sum::<usize>() <= EXEMPLAR_MAX).then_some(exemplar)
}
