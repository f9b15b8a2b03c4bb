//! A collector in this process that receives OTLP over gRPC, and the spans of both processes about one job.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span as ExportedSpan;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tracing::dispatcher::with_default;

use super::*;
use crate::telemetry::{LogFormat, made};

const UID: &str = "0c9a8d74-12f3-4a5b-9c8d-7e6f5a4b3c2d";

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportedSpan>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let spans = scopes.flat_map(|scope| scope.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// The spans of a process for the job, sent to the collector at `address`.
fn work(address: &str, process: &'static str) {
    let traces = start(address, process).unwrap();
    let (log, _) = made(LogFormat::Json, "warn", std::io::sink, Some(&traces)).unwrap();
    with_default(&log, || {
        let outer = tracing::error_span!("reconcile", job = "team/mnist");
        of_job(&outer, UID);
        let _within = outer.entered();
        let _call = tracing::trace_span!("vipu", method = "CreatePartition").entered();
        tracing::info!("a line below the level of the log");
    });
    if process == "controller" {
        let times = (Timestamp::UNIX_EPOCH, Timestamp::now());
        root(&traces.tracer(), UID, "team/mnist".to_owned(), times);
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
        let address = address.clone();
        let working = tokio::task::spawn_blocking(move || work(&address, process));
        working.await.unwrap();
    }

    let spans = collector.0.lock().unwrap().clone();
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
    assert_eq!(spans[0].parent_span_id, spans[1].span_id);
    assert_eq!(spans[0].events[0].name, "a line below the level of the log");
}

#[test]
fn an_invalid_uid_has_no_trace_and_no_message() {
    for wrong in ["", "uid", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(id(wrong), "");
        of_job(&Span::none(), wrong);
    }
    assert_eq!(id(UID), "0c9a8d7412f34a5b9c8d7e6f5a4b3c2d");
}

#[tokio::test]
async fn an_invalid_address_is_reported() {
    for wrong in ["", "collector:4317", "https://collector:4317", "/run/otlp"] {
        let error = start(wrong, "controller").unwrap_err();
        assert!(matches!(error, TraceError::Address(_)), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_holds_nothing_up() {
    let working = tokio::task::spawn_blocking(|| work("http://127.0.0.1:1", "vipu-proxy"));
    working.await.unwrap();
}
