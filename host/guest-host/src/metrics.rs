//! Calls of guests, their exchange, and where the built-in walk decides in a guest's place.

use std::time::Duration;

use ipu_runtime::metrics::Values;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::GuestError;
use super::model::Slot;

/// Bounds of the buckets, in seconds: a call takes a millisecond, and is ended after some.
const BUCKETS: [f64; 12] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// Calls of guests. Cheap to clone; all clones count the same.
#[derive(Clone, Debug)]
pub struct GuestCalls {
    took: Family<Call, Histogram, fn() -> Histogram>,
    waited: Family<At, Histogram, fn() -> Histogram>,
    given_up: Family<GivenUp, Counter>,
    swaps: Family<At, Counter>,
    fallbacks: Family<Passed, Counter>,
    digests: Values,
    policies: Values,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    hook: &'static str,
    digest: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct At {
    hook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GivenUp {
    hook: &'static str,
    reason: &'static str,
}

/// Why a guest that was to be asked gave no answer, through no fault of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// There was no permit for its call.
    Busy,
    /// Others took the time of the request.
    OutOfTime,
    /// It cannot be said whether the request concerns it.
    Unjudged,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Passed {
    policy: String,
}

impl Default for GuestCalls {
    fn default() -> Self {
        Self {
            took: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            waited: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            given_up: Family::default(),
            swaps: Family::default(),
            fallbacks: Family::default(),
            digests: Values::default(),
            policies: Values::default(),
        }
    }
}

impl GuestCalls {
    /// A call waited so long for its permit.
    pub fn waited(&self, slot: Slot, waited: Duration) {
        let at = At { hook: hook(slot) };
        self.waited.get_or_create(&at).observe(waited.as_secs_f64());
    }

    /// A guest that was to be asked gave no answer, through no fault of its own.
    pub fn given_up(&self, slot: Slot, why: Unasked) {
        let given_up = GivenUp {
            hook: hook(slot),
            reason: match why {
                Unasked::Busy => "busy",
                Unasked::OutOfTime => "out_of_time",
                Unasked::Unjudged => "unjudged",
            },
        };
        self.given_up.get_or_create(&given_up).inc();
    }

    /// The guest of this digest was called, where one was found.
    pub fn called(
        &self,
        slot: Slot,
        digest: Option<&str>,
        error: Option<&GuestError>,
        took: Duration,
    ) {
        let call = Call {
            hook: hook(slot),
            digest: digest.map_or_else(|| "none".to_owned(), |digest| self.digests.bounded(digest)),
            outcome: error.map_or("answered", outcome),
        };
        self.took.get_or_create(&call).observe(took.as_secs_f64());
    }

    /// Another guest, or another version of one, is asked at this hook.
    pub fn swapped(&self, slot: Slot) {
        self.swaps.get_or_create(&At { hook: hook(slot) }).inc();
    }

    /// The built-in walk decided in the place of the guest of this policy.
    pub fn fell_back(&self, policy: &str) {
        let policy = self.policies.bounded(policy);
        self.fallbacks.get_or_create(&Passed { policy }).inc();
    }

    /// Registers these metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "guest_call_duration",
            "How long a call of a guest took, from when it ran",
            Unit::Seconds,
            self.took.clone(),
        );
        registry.register_with_unit(
            "guest_wait_duration",
            "How long a call of a guest waited for its permit to run",
            Unit::Seconds,
            self.waited.clone(),
        );
        registry.register(
            "guest_calls_given_up",
            "Calls of guests that were given up without a fault of the guest",
            self.given_up.clone(),
        );
        registry.register(
            "guest_swaps",
            "Changes of the active guests of a hook",
            self.swaps.clone(),
        );
        registry.register(
            "placement_fallbacks",
            "Placements that the built-in serial walk decided instead of a policy",
            self.fallbacks.clone(),
        );
    }
}

/// The value of the label `hook`.
pub fn hook(slot: Slot) -> &'static str {
    match slot {
        Slot::Defaulting => "defaulting",
        Slot::Validation => "validation",
        Slot::Placement => "placement",
    }
}

fn outcome(error: &GuestError) -> &'static str {
    match error {
        GuestError::Missing(_) => "missing",
        GuestError::NotReady(_) => "not_ready",
        GuestError::Unjudged(_) => "unjudged",
        GuestError::OutOfTime(_) => "out_of_time",
        GuestError::Busy { .. } => "busy",
        GuestError::Deadline(_) => "deadline",
        GuestError::Starved { .. } => "starved",
        GuestError::Memory(_) => "memory",
        GuestError::Trap(_) => "trap",
        GuestError::NotThere(_) => "not_there",
        GuestError::OutputTooLarge { .. } => "output_too_large",
        GuestError::Settings(_) => "settings",
        GuestError::Failed(_) => "failed",
        GuestError::BadAnswer(_) => "bad_answer",
        GuestError::Call(_) => "call",
    }
}
