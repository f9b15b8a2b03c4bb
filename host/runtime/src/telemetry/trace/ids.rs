//! The ids of a job's trace, which derive from its UID.

use std::cell::Cell;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

/// The trace of a job: a UID has as many bits as the id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobTrace {
    id: TraceId,
    root: SpanId,
}

impl JobTrace {
    /// The trace of the job with this UID, if it is valid: 32 hexadecimal digits without the
    /// dashes.
    pub(super) fn of(uid: &str) -> Option<Self> {
        let digits = uid.replace('-', "");
        if digits.len() != 32 {
            return None;
        }
        let trace = Self {
            id: TraceId::from_hex(&digits).ok()?,
            root: SpanId::from_hex(&digits[16..]).ok()?,
        };
        let is_valid = trace.id != TraceId::INVALID && trace.root != SpanId::INVALID;
        is_valid.then_some(trace)
    }

    pub(super) fn id(self) -> TraceId {
        self.id
    }

    /// The root span of the trace. Every process computes the same one at any time.
    pub(super) fn root(self) -> SpanContext {
        let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
        SpanContext::new(self.id, self.root, flags, true, state)
    }
}

thread_local! {
    /// The trace of the root span in creation. The library calls its id generator meanwhile, on the
    /// same thread.
    static ROOT: Cell<Option<JobTrace>> = const { Cell::new(None) };
}

/// Creates a span as the root of this trace.
pub(super) fn given<T>(trace: JobTrace, make: impl FnOnce() -> T) -> T {
    ROOT.set(Some(trace));
    let made = make();
    ROOT.set(None);
    made
}

/// Random ids, except for root spans.
#[derive(Debug, Default)]
pub(super) struct JobIds(RandomIdGenerator);

impl IdGenerator for JobIds {
    fn new_trace_id(&self) -> TraceId {
        ROOT.get()
            .map_or_else(|| self.0.new_trace_id(), JobTrace::id)
    }

    fn new_span_id(&self) -> SpanId {
        let root = ROOT.get().map(|trace| trace.root);
        root.unwrap_or_else(|| self.0.new_span_id())
    }
}
