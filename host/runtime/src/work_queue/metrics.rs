//! Metrics of reconciles: their number, results and durations, and the depth of their queue.

mod client_go;

use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use self::client_go::{WorkQueue, WorkQueues};
use super::Requeue;
use crate::metrics;

/// Bounds of the buckets, in seconds: a reconcile takes milliseconds, and one that creates a
/// partition minutes.
const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0,
];

/// Metrics of the reconciles of all kinds in one process. Clones share the values.
#[derive(Clone, Debug)]
pub struct AllReconciles {
    results: Family<Labels<2>, Counter>,
    errors: Family<Labels<2>, Counter>,
    duration: Family<Labels<1>, Histogram, fn() -> Histogram>,
    running: Family<Labels<1>, Gauge>,
    waiting: Family<Labels<1>, Gauge>,
    events_lost: Family<Labels<1>, Counter>,
    queues: WorkQueues,
}

/// Metrics of the reconciles of one kind. Clones share the values.
#[derive(Clone, Debug)]
pub struct Reconciles {
    kind: &'static str,
    results: Family<Labels<2>, Counter>,
    errors: Family<Labels<2>, Counter>,
    duration: Histogram,
    running: Gauge,
    waiting: Gauge,
    queue: WorkQueue,
    /// Kubernetes events that were dropped, because the queues were full.
    pub events_lost: Counter,
}

/// Labels with their values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// A reconcile in progress, until this is dropped.
#[derive(Debug)]
pub struct Running {
    reconciles: Reconciles,
    began: Instant,
}

/// The gauge of a queue's depth. Its drop sets the gauge to 0.
#[derive(Debug)]
pub struct QueueDepth(Reconciles);

impl Default for AllReconciles {
    fn default() -> Self {
        Self {
            results: Family::default(),
            errors: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            running: Family::default(),
            waiting: Family::default(),
            events_lost: Family::default(),
            queues: WorkQueues::default(),
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
    /// Returns the gauge of an empty queue.
    pub fn queue_depth(&self) -> QueueDepth {
        QueueDepth(self.clone())
    }

    /// Counts an event that added an object to the queue.
    pub(super) fn added(&self) {
        self.queue.added();
    }

    /// Counts what a reconcile requests for its object.
    pub(super) fn requeued(&self, requeue: Requeue) {
        self.queue.requeued(requeue);
    }

    /// Records how long an object waited for its reconcile after it was due.
    pub(super) fn waited(&self, time: Duration) {
        self.queue.waited(time);
    }

    /// Returns the kind, which is the label `controller`.
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Records the start of a reconcile.
    pub fn begin(&self) -> Running {
        self.running.inc();
        Running {
            reconciles: self.clone(),
            began: Instant::now(),
        }
    }
}

impl AllReconciles {
    /// The metrics of one kind, which is their label `controller`.
    pub fn of_kind(&self, kind: &'static str) -> Reconciles {
        let label = [("controller", kind)];
        Reconciles {
            kind,
            results: self.results.clone(),
            errors: self.errors.clone(),
            duration: self.duration.get_or_create(&label).clone(),
            running: self.running.get_or_create(&label).clone(),
            waiting: self.waiting.get_or_create(&label).clone(),
            queue: self.queues.named(kind),
            events_lost: self.events_lost.get_or_create(&label).clone(),
        }
    }

    /// Registers the metrics under the names of Kubernetes' Go libraries, in a registry without a
    /// prefix.
    pub fn register_standard(&self, registry: &mut Registry) {
        self.queues.register(registry);
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("reconcile", "Reconciles that ended", self.results.clone());
        registry.register(
            "reconcile_errors",
            "Reconciles that ended with an error, by the failed action",
            self.errors.clone(),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "How long a reconcile took",
            Unit::Seconds,
            self.duration.clone(),
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

impl QueueDepth {
    /// Sets the number of pending objects.
    pub fn set(&self, count: usize) {
        self.0.waiting.set(metrics::count(count));
        self.0.queue.depth.set(metrics::count(count));
    }
}

impl Running {
    /// Records the end of the reconcile: a success, or an error of this category.
    pub fn end(self, error: Option<&'static str>) {
        let Reconciles {
            results,
            errors,
            duration,
            ..
        } = &self.reconciles;
        let took = self.began.elapsed().as_secs_f64();
        duration.observe(took);
        self.reconciles.queue.work_duration.observe(took);
        let result = if error.is_some() { "error" } else { "success" };
        let controller = ("controller", self.reconciles.kind);
        results
            .get_or_create(&[controller, ("result", result)])
            .inc();
        if let Some(category) = error {
            let failed = [controller, ("category", category)];
            errors.get_or_create(&failed).inc();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.reconciles.running.dec();
    }
}

impl Drop for QueueDepth {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_and_pending_reconciles_are_counted() {
        let reconciles = Reconciles::default();
        let depth = reconciles.queue_depth();
        depth.set(2);
        let running = reconciles.begin();
        assert_eq!((reconciles.waiting.get(), reconciles.running.get()), (2, 1));
        running.end(Some("Write"));
        assert_eq!(reconciles.running.get(), 0);
        let failed = [("controller", ""), ("category", "Write")];
        assert_eq!(reconciles.errors.get_or_create(&failed).get(), 1);
        drop(depth);
        assert_eq!(reconciles.waiting.get(), 0);
    }
}
