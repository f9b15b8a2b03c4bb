//! How many reconciles there are, how they end, how long they take, and how many wait.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::metrics;

/// Bounds of the buckets, in seconds: a reconcile takes milliseconds, and one that makes a partition
/// minutes.
const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0,
];

/// Reconciles of all kinds that a process reconciles. Cheap to clone; all clones count the same.
#[derive(Clone, Debug)]
pub struct AllReconciles {
    ends: Family<End, Counter>,
    errors: Family<Failed, Counter>,
    took: Family<Kind, Histogram, fn() -> Histogram>,
    running: Family<Kind, Gauge>,
    waiting: Family<Kind, Gauge>,
    events_lost: Family<Kind, Counter>,
}

/// Reconciles of one kind. Cheap to clone; all clones count the same.
#[derive(Clone, Debug)]
pub struct Reconciles {
    kind: &'static str,
    ends: Family<End, Counter>,
    errors: Family<Failed, Counter>,
    took: Histogram,
    running: Gauge,
    waiting: Gauge,
    /// Kubernetes events that were not written, because there were too many at once.
    pub events_lost: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct End {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    controller: &'static str,
    category: &'static str,
}

/// A reconcile that is under way until this is dropped.
#[derive(Debug)]
pub struct Running {
    reconciles: Reconciles,
    began: Instant,
}

/// A queue that is worked on until this is dropped.
#[derive(Debug)]
pub struct Queue(Reconciles);

impl Default for AllReconciles {
    fn default() -> Self {
        Self {
            ends: Family::default(),
            errors: Family::default(),
            took: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            running: Family::default(),
            waiting: Family::default(),
            events_lost: Family::default(),
        }
    }
}

impl Default for Reconciles {
    /// Of a kind without a name, for tests.
    fn default() -> Self {
        AllReconciles::default().of_kind("")
    }
}

impl Reconciles {
    /// The queue, empty.
    pub fn queue(&self) -> Queue {
        Queue(self.clone())
    }

    /// A reconcile begins.
    pub fn begin(&self) -> Running {
        self.running.inc();
        Running {
            reconciles: self.clone(),
            began: Instant::now(),
        }
    }
}

impl AllReconciles {
    /// Those of one kind, which have it as the label `controller`.
    pub fn of_kind(&self, kind: &'static str) -> Reconciles {
        let label = Kind { controller: kind };
        Reconciles {
            kind,
            ends: self.ends.clone(),
            errors: self.errors.clone(),
            took: self.took.get_or_create(&label).clone(),
            running: self.running.get_or_create(&label).clone(),
            waiting: self.waiting.get_or_create(&label).clone(),
            events_lost: self.events_lost.get_or_create(&label).clone(),
        }
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("reconcile", "Reconciles that ended", self.ends.clone());
        registry.register(
            "reconcile_errors",
            "Reconciles that ended early, by what failed",
            self.errors.clone(),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "How long a reconcile took",
            Unit::Seconds,
            self.took.clone(),
        );
        registry.register(
            "reconciles_running",
            "Reconciles that are under way",
            self.running.clone(),
        );
        registry.register(
            "reconcile_queue_depth",
            "Objects whose change was seen and whose reconcile has not begun",
            self.waiting.clone(),
        );
        registry.register(
            "events_lost",
            "Kubernetes events that were not written, because there were too many at once",
            self.events_lost.clone(),
        );
    }
}

impl Queue {
    /// So many objects wait.
    pub fn waits(&self, count: usize) {
        self.0.waiting.set(metrics::count(count));
    }
}

impl Running {
    /// The reconcile has ended: well, or by an error of this category.
    pub fn end(self, error: Option<&'static str>) {
        let Reconciles {
            ends, errors, took, ..
        } = &self.reconciles;
        took.observe(self.began.elapsed().as_secs_f64());
        let result = if error.is_some() { "error" } else { "success" };
        let controller = self.reconciles.kind;
        ends.get_or_create(&End { controller, result }).inc();
        if let Some(category) = error {
            let failed = Failed {
                controller,
                category,
            };
            errors.get_or_create(&failed).inc();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.reconciles.running.dec();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.waits(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_and_what_waits_is_counted_until_it_ends() {
        let reconciles = Reconciles::default();
        let queue = reconciles.queue();
        queue.waits(2);
        let running = reconciles.begin();
        assert_eq!((reconciles.waiting.get(), reconciles.running.get()), (2, 1));
        running.end(Some("Write"));
        assert_eq!(reconciles.running.get(), 0);
        let category = Failed {
            controller: "",
            category: "Write",
        };
        assert_eq!(reconciles.errors.get_or_create(&category).get(), 1);
        drop(queue);
        assert_eq!(reconciles.waiting.get(), 0);
    }
}
