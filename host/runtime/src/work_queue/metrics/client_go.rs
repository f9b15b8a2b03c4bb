//! The metrics of work queues under the names of Kubernetes' Go libraries, which dashboards of
//! other controllers show.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::Labels;
use crate::work_queue::Requeue;

/// Bounds of the buckets, in seconds: those of the Go libraries.
const BUCKETS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 9e-6, 99e-6, 999e-6, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0,
];

/// Metrics of the work queues of a process. Clones share the values.
#[derive(Clone, Debug)]
pub(super) struct WorkQueues {
    depth: Family<Labels<1>, Gauge>,
    adds: Family<Labels<1>, Counter>,
    retries: Family<Labels<1>, Counter>,
    queue_duration: Family<Labels<1>, Histogram, fn() -> Histogram>,
    work_duration: Family<Labels<1>, Histogram, fn() -> Histogram>,
}

/// Metrics of one work queue. Clones share the values.
#[derive(Clone, Debug)]
pub(super) struct WorkQueue {
    pub(super) depth: Gauge,
    pub(super) work_duration: Histogram,
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
}

impl Default for WorkQueues {
    fn default() -> Self {
        Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queue_duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            work_duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl WorkQueues {
    /// The metrics of a queue.
    pub(super) fn named(&self, name: &'static str) -> WorkQueue {
        let label = [("name", name)];
        WorkQueue {
            depth: self.depth.get_or_create(&label).clone(),
            work_duration: self.work_duration.get_or_create(&label).clone(),
            adds: self.adds.get_or_create(&label).clone(),
            retries: self.retries.get_or_create(&label).clone(),
            queue_duration: self.queue_duration.get_or_create(&label).clone(),
        }
    }

    /// Registers these metrics in a registry without a prefix.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "workqueue_depth",
            "Objects that wait for a reconcile",
            self.depth.clone(),
        );
        registry.register(
            "workqueue_adds",
            "Objects that were added to the queue",
            self.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Objects that were added again with a delay that grows",
            self.retries.clone(),
        );
        registry.register_with_unit(
            "workqueue_queue_duration",
            "How long an object waited for its reconcile after it was due",
            Unit::Seconds,
            self.queue_duration.clone(),
        );
        registry.register_with_unit(
            "workqueue_work_duration",
            "How long a reconcile took",
            Unit::Seconds,
            self.work_duration.clone(),
        );
    }
}

impl WorkQueue {
    /// Counts an event that added an object.
    pub(super) fn added(&self) {
        self.adds.inc();
    }

    /// Counts what a reconcile requests for its object.
    pub(super) fn requeued(&self, requeue: Requeue) {
        self.adds.inc_by(u64::from(requeue != Requeue::Never));
        let is_retry = matches!(requeue, Requeue::BackOff { .. });
        self.retries.inc_by(u64::from(is_retry));
    }

    /// Records the time between an object's due time and the start of its reconcile.
    pub(super) fn waited(&self, time: Duration) {
        self.queue_duration.observe(time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn samples_have_the_names_of_the_go_libraries() {
        let queues = WorkQueues::default();
        let queue = queues.named("ipujob");
        queue.added();
        for requeue in [
            Requeue::Never,
            Requeue::After(Duration::ZERO),
            Requeue::BackOff {
                first: Duration::ZERO,
                most: Duration::ZERO,
            },
        ] {
            queue.requeued(requeue);
        }
        queue.depth.set(4);
        queue.waited(Duration::from_secs(2));
        queue.work_duration.observe(0.5);
        let (mut registry, mut printed) = (Registry::default(), String::new());
        queues.register(&mut registry);
        text::encode(&mut printed, &registry).unwrap();
        for sample in [
            "workqueue_adds_total{name=\"ipujob\"} 3",
            "workqueue_retries_total{name=\"ipujob\"} 1",
            "workqueue_depth{name=\"ipujob\"} 4",
            "workqueue_queue_duration_seconds_sum{name=\"ipujob\"} 2.0",
            "workqueue_work_duration_seconds_sum{name=\"ipujob\"} 0.5",
        ] {
            assert!(printed.lines().any(|line| line == sample), "{printed}");
        }
    }
}
