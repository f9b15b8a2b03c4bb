//! A collector in this process that receives OTLP over gRPC, and the spans of both processes about
//! one job.

mod secured;

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue as ExportedAttribute;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span as ExportedSpan};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tracing::dispatcher::with_default;

use super::*;
use crate::telemetry::{LogFormat, made};

const UID: &str = "0c9a8d74-12f3-4a5b-9c8d-7e6f5a4b3c2d";

const JOB: TracedObject<'_> = TracedObject {
    kind: "IPUJob",
    namespace: "team",
    name: "mnist",
    uid: UID,
};

/// What a collector has received: the spans, and the value of a header of each request.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<ResourceSpans>>>,
    tenants: Arc<Mutex<Vec<Option<String>>>>,
}

impl Collector {
    fn spans(&self) -> Vec<ExportedSpan> {
        let resources = self.spans.lock().unwrap().clone().into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let tenant = request.metadata().get("x-tenant");
        let tenant = tenant.map(|tenant| tenant.to_str().unwrap().to_owned());
        self.tenants.lock().unwrap().push(tenant);
        let received = request.into_inner().resource_spans;
        self.spans.lock().unwrap().extend(received);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// The attributes with these keys, of those that are texts.
fn texts(attributes: &[ExportedAttribute], keys: &[&str]) -> Vec<String> {
    let text = |key: &&str| {
        let attribute = attributes.iter().find(|attribute| attribute.key == *key)?;
        match attribute.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => Some(text.clone()),
            _ => None,
        }
    };
    keys.iter().filter_map(text).collect()
}

/// The collector at this address, without TLS.
fn at(address: &str) -> Destination {
    let options = TraceOptions {
        endpoint: Some(address),
        ..TraceOptions::default()
    };
    let found = Destination::find(&options, |_| None);
    found.unwrap().unwrap()
}

/// The spans of a process for the job, sent to the collector.
fn work(destination: &Destination, process: &'static str) {
    let traces = start(destination, process).unwrap();
    let (log, _) = made(LogFormat::Json, "warn", std::io::sink, Some(&traces)).unwrap();
    with_default(&log, || {
        let outer = tracing::error_span!("reconcile", job = "team/mnist");
        of_object(&outer, &JOB);
        let _within = outer.entered();
        let _call = tracing::trace_span!("vipu", method = "CreatePartition").entered();
        tracing::info!("a line below the level of the log");
    });
    if process == "controller" {
        let times = (Timestamp::UNIX_EPOCH, Timestamp::now());
        root(&traces.tracer(), &JOB, times);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_processes_record_a_job_in_one_trace() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let collector = Collector::default();
    let service = TraceServiceServer::new(collector.clone());
    let serving = Server::builder().add_service(service);
    tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
    for process in ["controller", "vipu-proxy"] {
        let destination = at(&address);
        let working = tokio::task::spawn_blocking(move || work(&destination, process));
        working.await.unwrap();
    }

    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["vipu", "reconcile", "IPUJob", "vipu", "reconcile"]);
    let id = u128::from_str_radix(&UID.replace('-', ""), 16).unwrap();
    assert!(spans.iter().all(|span| span.trace_id == id.to_be_bytes()));
    let root = &spans[2];
    assert_eq!(root.parent_span_id, [0; 0]);
    assert_eq!(root.start_time_unix_nano, 0);
    for outer in [&spans[1], &spans[4]] {
        assert_eq!(outer.parent_span_id, root.span_id);
    }
    for named in [&spans[1], root, &spans[4]] {
        let keys = ["k8s.namespace.name", "graphcore.ipujob.name", "job"];
        let texts = texts(&named.attributes, &keys);
        assert_eq!(texts, ["team", "mnist", "team/mnist"], "{}", named.name);
    }
    assert_eq!(spans[0].parent_span_id, spans[1].span_id);
    assert_eq!(spans[0].events[0].name, "a line below the level of the log");
}

#[test]
fn an_invalid_uid_has_no_trace_and_no_message() {
    for wrong in ["", "uid", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(id(wrong), "");
        let object = TracedObject { uid: wrong, ..JOB };
        of_object(&Span::none(), &object);
    }
    assert_eq!(id(UID), "0c9a8d7412f34a5b9c8d7e6f5a4b3c2d");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_holds_nothing_up() {
    let working = tokio::task::spawn_blocking(|| work(&at("http://127.0.0.1:1"), "vipu-proxy"));
    working.await.unwrap();
}
