//! The routes, asked in-process.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use kube::runtime::reflector;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, IPUPartition, IPUPartitionSpec, IPUPartitionStatus,
    PartitionOwner,
};
use crate::partition::node_labels::node_labels;
use crate::vipu::{Deadlines, Registry};
use crate::wasm::model::ControllerView;

fn sources() -> (Sources, Writer<Guarded>) {
    let (partitions, writer) = reflector::store();
    let registry = Arc::new(Registry::new(Deadlines::default()));
    let fleet = Arc::new(Fleet::new(registry, node_labels().0));
    (Sources { partitions, fleet }, writer)
}

async fn ask(method: &str, path: &str, body: impl Into<Body>) -> (StatusCode, Value) {
    let (sources, _writer) = sources();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(body.into())
        .unwrap();
    let response = router(sources).oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

fn partition(namespace: &str, ipus: u32, outcome: AttemptOutcome) -> IPUPartition {
    let spec = IPUPartitionSpec {
        owner: PartitionOwner {
            api_version: "graphcore.ai/v1alpha1".to_owned(),
            kind: "IPUJob".to_owned(),
            namespace: namespace.to_owned(),
            name: "mnist".to_owned(),
            uid: "uid".to_owned(),
        },
        slot: 0,
        ipus,
        gcds: 1,
        options: Default::default(),
        reset_generation: 0,
    };
    let mut partition = IPUPartition::new("p", spec);
    partition.status = Some(IPUPartitionStatus {
        attempts: vec![Attempt {
            controller: ControllerRef {
                name: "pod1:8090".to_owned(),
                host: "pod1".to_owned(),
                port: 8090,
                label_key: "vipu".to_owned(),
                label_value: "pod1".to_owned(),
            },
            id: "p-mnist".to_owned(),
            outcome,
            reason: None,
            started: None,
        }],
        ..IPUPartitionStatus::default()
    });
    partition
}

fn controller(total_ipus: u32, used_ipus: u32, unreachable: Option<&str>) -> ControllerView {
    ControllerView {
        name: "pod1:8090".to_owned(),
        label_key: "vipu".to_owned(),
        label_value: "pod1".to_owned(),
        has_nodes: true,
        unreachable: unreachable.map(str::to_owned),
        total_ipus,
        used_ipus,
        largest_free: 0,
    }
}

#[test]
fn stats_are_those_of_the_original() {
    let partitions = [
        partition("default", 4, AttemptOutcome::Created),
        partition("other", 8, AttemptOutcome::Unknown),
    ];
    let answer = answers::stats(&partitions, &[controller(32, 4, None)]);
    insta::assert_json_snapshot!(answer, @r#"
    {
      "default": {
        "used": 4,
        "available": 28
      },
      "total": {
        "used": 4,
        "available": 28
      }
    }
    "#);
}

#[test]
fn what_others_made_is_not_available_and_not_ours() {
    let controllers = [
        controller(16, 16, None),
        controller(64, 20, None),
        controller(64, 0, Some("down")),
    ];
    let answer = answers::stats(&[], &controllers);
    assert_eq!(answer.len(), 1);
    assert_eq!(
        answer["total"],
        answers::Stats {
            used: 0,
            available: 44
        }
    );
}

#[test]
fn room_counts_each_controller_by_itself() {
    let controllers = [controller(16, 13, None), controller(16, 3, None)];
    let numbers: Vec<u64> = [1, 2, 4, 8, 16]
        .map(|size| answers::room(size, &controllers).num_of_partitions)
        .into();
    assert_eq!(numbers, [16, 7, 3, 1, 0]);
}

#[test]
fn a_silent_controller_is_named() {
    let room = answers::room(1, &[controller(16, 0, Some("connection refused"))]);
    insta::assert_json_snapshot!(room, @r#"
    {
      "available": true,
      "numOfPartitions": 0,
      "message": "not counted, since they do not answer: pod1:8090 (connection refused)"
    }
    "#);
}

#[tokio::test]
async fn a_query_answers_with_no_room_too() {
    let (status, answer) = ask("POST", "/query", r#"{"size": 2}"#).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        answer,
        json!({"available": true, "numOfPartitions": 0, "message": ""})
    );
}

#[tokio::test]
async fn a_wrong_size_is_named_with_its_rule() {
    let sizes = [
        "0",
        "3",
        "-2",
        "2.5",
        "4294967296",
        "1e99",
        "\"2\"",
        "null",
        "[]",
        "{}",
        "true",
    ];
    for size in sizes {
        let (status, fault) = ask("POST", "/query", format!("{{\"size\": {size}}}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{size}");
        assert_eq!(fault["field"], "size", "{size}");
        assert!(
            fault["rule"].as_str().unwrap().contains("power of two"),
            "{fault}"
        );
    }
    let (_, fault) = ask("POST", "/query", "{\"size\": 3}").await;
    assert_eq!(fault["value"], "3");
}

#[tokio::test]
async fn a_body_that_is_no_question_is_refused() {
    let deep = "[".repeat(2_000);
    let bodies: [&[u8]; 6] = [b"", b"{", b"[2]", b"\xff\xfe", b"size=2", deep.as_bytes()];
    for body in bodies {
        let (status, fault) = ask("POST", "/query", body.to_vec()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(fault["field"], "body", "{fault}");
        assert!(fault["value"].as_str().unwrap().chars().count() <= 81);
    }
}

#[tokio::test]
async fn a_huge_body_is_not_read() {
    let (status, fault) = ask("POST", "/query", vec![b' '; 1 << 20]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(
        fault["rule"].as_str().unwrap().contains("4096 bytes"),
        "{fault}"
    );
}

#[tokio::test]
async fn a_wrong_method_or_path_is_named() {
    for (method, path, status, field) in [
        ("GET", "/query", 405, "method"),
        ("DELETE", "/stats", 405, "method"),
        ("POST", "/health", 405, "method"),
        ("GET", "/partitions", 404, "path"),
        ("GET", "/stats/../../etc", 404, "path"),
    ] {
        let (found, fault) = ask(method, path, "").await;
        assert_eq!(found.as_u16(), status, "{method} {path}");
        assert_eq!(fault["field"], field, "{method} {path}");
    }
}

#[tokio::test]
async fn it_is_alive_at_once_and_ready_when_the_partitions_are_known() {
    let (sources, mut writer) = sources();
    let get = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        router(sources.clone())
            .oneshot(request)
            .await
            .unwrap()
            .status()
    };
    assert_eq!(get("/health").await, StatusCode::OK);
    assert_eq!(get("/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
    writer.apply_watcher_event(&Event::Init);
    writer.apply_watcher_event(&Event::InitDone);
    assert_eq!(get("/readyz").await, StatusCode::OK);
}
