//! Metrics of the calls of guests, of the changes of active guests, and of placement fallbacks.

use std::time::Duration;

use ipu_api::ipupolicy::Hook;
use ipu_runtime::metrics::Values;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::guest_error::GuestError;

/// Bounds of the buckets, in seconds. A call takes about a millisecond.
const BUCKETS: [f64; 12] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// Metrics of guests. Cheap to clone; all clones share the counts.
#[derive(Clone, Debug)]
pub struct GuestCalls {
    durations: Family<Call, Histogram, fn() -> Histogram>,
    waits: Family<Labels<1>, Histogram, fn() -> Histogram>,
    skipped: Family<Labels<2>, Counter>,
    swaps: Family<Labels<1>, Counter>,
    fallbacks: Family<[(&'static str, String); 1], Counter>,
    unanswered: Family<[(&'static str, String); 1], Counter>,
    digests: Values,
    policies: Values,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    hook: &'static str,
    digest: String,
    outcome: &'static str,
}

/// Labels with their values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Reason why the operator skipped a guest, without a fault of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// No permit was free for the call, or for the evaluation of `spec.match`.
    Busy,
    /// All guests of the request together exceeded its time.
    OutOfTime,
    /// The evaluation of `spec.match` failed.
    MatchFailed,
}

impl Default for GuestCalls {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            waits: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            skipped: Family::default(),
            swaps: Family::default(),
            fallbacks: Family::default(),
            unanswered: Family::default(),
            digests: Values::default(),
            policies: Values::default(),
        }
    }
}

impl GuestCalls {
    /// Records the wait of a call for its permit.
    pub fn record_wait(&self, hook: Hook, waited: Duration) {
        let label = [("hook", hook.world())];
        self.waits
            .get_or_create(&label)
            .observe(waited.as_secs_f64());
    }

    /// Counts a skipped guest.
    pub fn count_skipped(&self, hook: Hook, reason: SkipReason) {
        let reason = match reason {
            SkipReason::Busy => "busy",
            SkipReason::OutOfTime => "out_of_time",
            SkipReason::MatchFailed => "match_failed",
        };
        let skipped = [("hook", hook.world()), ("reason", reason)];
        self.skipped.get_or_create(&skipped).inc();
    }

    /// Records a call of the module with this digest, if one was loaded.
    pub fn record_call(
        &self,
        hook: Hook,
        digest: Option<&str>,
        error: Option<&GuestError>,
        duration: Duration,
    ) {
        let call = Call {
            hook: hook.world(),
            digest: digest.map_or_else(|| "none".to_owned(), |digest| self.digests.bounded(digest)),
            outcome: error.map_or("answered", outcome),
        };
        self.durations
            .get_or_create(&call)
            .observe(duration.as_secs_f64());
    }

    /// Counts a change of the active guests of a hook.
    pub fn count_swap(&self, hook: Hook) {
        let label = [("hook", hook.world())];
        self.swaps.get_or_create(&label).inc();
    }

    /// Counts a decision of the built-in serial walk instead of this policy.
    pub fn count_fallback(&self, policy: &str) {
        let policy = self.policies.bounded(policy);
        self.fallbacks.get_or_create(&[("policy", policy)]).inc();
    }

    /// Counts a request that waits because the guest of this policy gave no usable answer.
    pub fn count_unanswered(&self, policy: &str) {
        let policy = self.policies.bounded(policy);
        self.unanswered.get_or_create(&[("policy", policy)]).inc();
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "guest_call_duration",
            "How long a call of a guest took, from when it ran",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register_with_unit(
            "guest_wait_duration",
            "How long a call of a guest waited for its permit to run",
            Unit::Seconds,
            self.waits.clone(),
        );
        registry.register(
            "guest_calls_given_up",
            "Calls of guests that were given up without a fault of the guest",
            self.skipped.clone(),
        );
        registry.register(
            "guest_swaps",
            "Changes of the active guests of a hook",
            self.swaps.clone(),
        );
        registry.register(
            "placement_fallbacks",
            "Placements that the built-in serial walk decided instead of the guest of a policy",
            self.fallbacks.clone(),
        );
        registry.register(
            "placement_unanswered",
            "Decisions to let a partition wait because the guest of its policy gave no usable answer",
            self.unanswered.clone(),
        );
    }
}

fn outcome(error: &GuestError) -> &'static str {
    match error {
        GuestError::Missing(_) => "missing",
        GuestError::NotReady(_) => "not_ready",
        GuestError::MatchFailed(_) => "match_failed",
        GuestError::OutOfTime(_) => "out_of_time",
        GuestError::Busy { .. } | GuestError::MatchBusy(_) => "busy",
        GuestError::Deadline(_) => "deadline",
        GuestError::Starved { .. } => "starved",
        GuestError::Memory(_) => "memory",
        GuestError::Trap(_) => "trap",
        GuestError::UnsupportedWasi(_) => "unsupported_wasi",
        GuestError::OutputTooLarge { .. } => "output_too_large",
        GuestError::Settings(_) => "settings",
        GuestError::Failed(_) => "failed",
        GuestError::BadAnswer(_) => "bad_answer",
        GuestError::Call(_) => "call",
    }
}
