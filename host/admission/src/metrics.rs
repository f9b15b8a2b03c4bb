//! How long the webhooks take, and what they say.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

/// Bounds of the buckets, in seconds: a request takes milliseconds, and ten seconds at most.
const BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// Requests of the API server to the webhooks.
#[derive(Clone, Debug)]
pub struct Admission {
    took: Family<Labels, Took, fn() -> Took>,
}

type Took = HistogramWithExemplars<[(&'static str, String); 1]>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    webhook: &'static str,
    verdict: &'static str,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            took: Family::new_with_constructor(|| Took::new(BUCKETS.into_iter())),
        }
    }
}

impl Admission {
    /// A webhook gave this verdict on the request of this UID, which the exemplar names.
    pub fn answered(
        &self,
        webhook: &'static str,
        verdict: &'static str,
        request: Option<&str>,
        took: Duration,
    ) {
        // A UID of the API server has 36 characters; an exemplar may have 128.
        let request = request.filter(|uid| uid.len() <= 64);
        let exemplar = request.map(|uid| [("request_uid", uid.to_owned())]);
        let histogram = self.took.get_or_create(&Labels { webhook, verdict });
        histogram.observe(took.as_secs_f64(), exemplar, None);
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "admission_duration",
            "How long a webhook took to answer, by what it answered",
            Unit::Seconds,
            self.took.clone(),
        );
    }
}
