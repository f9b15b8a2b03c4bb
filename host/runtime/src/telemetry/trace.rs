//! Traces for OpenTelemetry: the work of both processes for a job, from its admission to its Pods, in one trace.
//!
//! No context passes between the processes. The id of a job's trace is its UID, so every process knows the trace of a
//! job, and a UID in a log leads to the trace.

mod ids;

use std::time::{Duration, SystemTime};

use http::Uri;
use jiff::Timestamp;
use opentelemetry::trace::{TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter as Export};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use self::ids::{JobIds, JobTrace};

/// Time limit for sending a batch of spans.
const DEADLINE: Duration = Duration::from_secs(5);

/// Failure to start the traces.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The address is not that of a collector.
    #[error(
        "{0:?} is not the address of an OpenTelemetry collector; write http://<host>:<port>, where the port of OTLP \
         over gRPC is usually 4317"
    )]
    Address(String),
    /// The exporter cannot be created.
    #[error("failed to prepare to send traces to {0}")]
    Exporter(String, #[source] ExporterBuildError),
}

/// Sends spans to a collector until it is dropped. The drop sends the remaining ones.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

/// Sends the traces of this process to a collector over OTLP with gRPC. It needs a runtime. A collector that does not
/// answer blocks nothing: unsent spans are dropped.
pub fn start(address: &str, process: &'static str) -> Result<Traces, TraceError> {
    let is_collector = |uri: &Uri| uri.scheme_str() == Some("http") && uri.host().is_some();
    if !address.parse::<Uri>().is_ok_and(|uri| is_collector(&uri)) {
        return Err(TraceError::Address(address.to_owned()));
    }
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(address)
        .with_timeout(DEADLINE)
        .build();
    let exporter = exporter.map_err(|source| TraceError::Exporter(address.to_owned(), source))?;
    let traces = Traces::to(exporter, process);
    global::set_tracer_provider(traces.0.clone());
    Ok(traces)
}

impl Traces {
    fn to(exporter: impl Export + 'static, process: &'static str) -> Self {
        let resource = Resource::builder()
            .with_service_name(format!("ipu-operator-{process}"))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_id_generator(JobIds::default())
            .with_batch_exporter(exporter);
        Self(provider.build())
    }

    pub(super) fn tracer(&self) -> SdkTracer {
        self.0.tracer("ipu-operator")
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // Unsent spans are lost at the end, as after a kill.
        let _ = self.0.shutdown_with_timeout(DEADLINE);
    }
}

/// Adds a span to the trace of the job with this UID. Without traces it does nothing.
pub fn of_job(span: &Span, uid: &str) {
    if let Some(trace) = JobTrace::of(uid) {
        let parent = Context::new().with_remote_span_context(trace.root());
        // Without traces there is no layer that accepts a parent.
        let _ = span.set_parent(parent);
    }
}

/// The trace id of the job with this UID, for the log. Empty if the UID is not valid.
pub fn id(uid: &str) -> String {
    JobTrace::of(uid).map_or_else(String::new, |trace| trace.id().to_string())
}

/// Records the time from a job's creation to its start, as the root span of its trace. `name` is `namespace/name`.
pub fn runs(uid: &str, name: String, created: Timestamp, now: Timestamp) {
    root(&global::tracer("ipu-operator"), uid, name, (created, now));
}

fn root<T: Tracer>(tracer: &T, uid: &str, name: String, (created, now): (Timestamp, Timestamp)) {
    let Some(trace) = JobTrace::of(uid) else {
        return;
    };
    let span = tracer
        .span_builder("IPUJob")
        .with_start_time(SystemTime::from(created))
        .with_attributes([KeyValue::new("job", name)]);
    let mut span = ids::given(trace, || tracer.build_with_context(span, &Context::new()));
    opentelemetry::trace::Span::end_with_timestamp(&mut span, SystemTime::from(now));
}

#[cfg(test)]
mod tests;
