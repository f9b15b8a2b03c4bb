//! Metrics of the webhooks.

use std::time::Duration;

use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

/// Bounds of the buckets, in seconds. A request takes milliseconds, and at most ten seconds.
const BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// Durations of the webhooks, by verdict.
#[derive(Clone, Debug)]
pub struct Admission {
    durations: Family<Labels, Durations, fn() -> Durations>,
}

type Durations = HistogramWithExemplars<[(&'static str, String); 1]>;

type Labels = [(&'static str, &'static str); 2];

impl Default for Admission {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(|| Durations::new(BUCKETS.into_iter())),
        }
    }
}

impl Admission {
    /// Records the verdict of a webhook. The exemplar has the UID of the request.
    pub fn record(
        &self,
        webhook: &'static str,
        verdict: &'static str,
        request: Option<&str>,
        duration: Duration,
    ) {
        // A UID of the API server has 36 characters; an exemplar may have 128.
        let request = request.filter(|uid| uid.len() <= 64);
        let exemplar = request.map(|uid| [("request_uid", uid.to_owned())]);
        let labels = [("webhook", webhook), ("verdict", verdict)];
        let histogram = self.durations.get_or_create(&labels);
        histogram.observe(duration.as_secs_f64(), exemplar, None);
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "admission_duration",
            "Time that a webhook took to answer, by webhook and verdict",
            Unit::Seconds,
            self.durations.clone(),
        );
    }
}
