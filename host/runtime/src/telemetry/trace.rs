//! Traces for OpenTelemetry: the work of both processes for a job, from its admission to its Pods,
//! in one trace.
//!
//! No context passes between the processes. The id of a job's trace is its UID, so every process
//! knows the trace of a job, and a UID in a log leads to the trace.

mod attributes;
mod destination;
mod ids;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use std::{env, io};

use jiff::Timestamp;
use opentelemetry::trace::{TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter as Export};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

pub use self::attributes::TracedObject;
pub use self::destination::{Destination, TraceOptions};
use self::ids::{JobIds, JobTrace};

/// Time limit for sending the remaining spans at the end of the process.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Failure to start the traces.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The address is not that of a collector.
    #[error(
        "{0:?} is not the address of an OpenTelemetry collector; write http://<host>:<port>, or https:// for TLS, where \
         the port of OTLP over gRPC is usually 4317"
    )]
    Address(String),
    /// A variable demands another protocol.
    #[error(
        "OTEL_EXPORTER_OTLP_PROTOCOL is {0:?}, and the operator sends traces by gRPC only: set it to grpc, and the endpoint \
         to the port of OTLP over gRPC, usually 4317"
    )]
    Protocol(String),
    /// A file for TLS cannot be read.
    #[error("failed to read {} for the connection to the OpenTelemetry collector", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The file with the CA contains none.
    #[error("{} contains no CA certificate: it must be PEM", .0.display())]
    NoCertificate(PathBuf),
    /// A client certificate without its key, or the reverse.
    #[error("{} needs {} beside it: give both, or none", .0.display(), .1)]
    Half(PathBuf, &'static str),
    /// The exporter cannot be created.
    #[error("failed to prepare to send traces to {0}")]
    Exporter(String, #[source] ExporterBuildError),
}

/// Sends spans to a collector until it is dropped. The drop sends the remaining ones.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

/// Sends the traces of this process to a collector over OTLP with gRPC. It needs a runtime. A
/// collector that does not answer blocks nothing: unsent spans are dropped.
pub fn start(destination: &Destination, process: &'static str) -> Result<Traces, TraceError> {
    let mut exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&destination.endpoint);
    if let Some(deadline) = destination.deadline {
        exporter = exporter.with_timeout(deadline);
    }
    if let Some(tls) = destination.tls()? {
        exporter = exporter.with_tls_config(tls);
    }
    let exporter = exporter.build();
    let exporter =
        exporter.map_err(|source| TraceError::Exporter(destination.endpoint.clone(), source))?;
    let traces = Traces::to(exporter, process);
    global::set_tracer_provider(traces.0.clone());
    Ok(traces)
}

impl Traces {
    fn to(exporter: impl Export + 'static, process: &'static str) -> Self {
        let provider = SdkTracerProvider::builder()
            .with_resource(attributes::resource(process, |name| env::var(name).ok()))
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
        let _ = self.0.shutdown_with_timeout(SHUTDOWN);
    }
}

/// Adds a span to the trace of the object, and names the object in the span's attributes. Without
/// traces it does nothing.
pub fn of_object(span: &Span, object: &TracedObject<'_>) {
    if let Some(trace) = JobTrace::of(object.uid) {
        let parent = Context::new().with_remote_span_context(trace.root());
        // Without traces there is no layer that accepts a parent.
        let _ = span.set_parent(parent);
    }
    for KeyValue { key, value, .. } in object.attributes() {
        span.set_attribute(key, value);
    }
}

/// The trace id of the job with this UID, for the log. Empty if the UID is not valid.
pub fn id(uid: &str) -> String {
    JobTrace::of(uid).map_or_else(String::new, |trace| trace.id().to_string())
}

/// Records the time from a job's creation to its start, as the root span of its trace.
pub fn runs(job: &TracedObject<'_>, created: Timestamp, now: Timestamp) {
    root(&global::tracer("ipu-operator"), job, (created, now));
}

fn root<T: Tracer>(tracer: &T, job: &TracedObject<'_>, (created, now): (Timestamp, Timestamp)) {
    let Some(trace) = JobTrace::of(job.uid) else {
        return;
    };
    let name = format!("{}/{}", job.namespace, job.name);
    let mut attributes = job.attributes();
    attributes.push(KeyValue::new("job", name));
    let span = tracer
        .span_builder("IPUJob")
        .with_start_time(SystemTime::from(created))
        .with_attributes(attributes);
    let mut span = ids::given(trace, || tracer.build_with_context(span, &Context::new()));
    opentelemetry::trace::Span::end_with_timestamp(&mut span, SystemTime::from(now));
}

#[cfg(test)]
mod tests;
