//! In-process tests of the routes.

mod controller_answers;
mod document;
mod fixture;
mod fuzz;
mod secure;
mod slow;

use axum::body::Body;
use ipu_api::guest::placement::{ControllerView, PlacementContext};
use ipu_api::ipupartition::{
    AttemptOutcome, IPUPartition, IPUPartitionSpec, IPUPartitionStatus, PartitionOwner,
};
use ipu_placement::samples;
use kube::runtime::watcher::Event;
use query_request::QueryRequest;
use serde_json::{Value, json};

use super::*;
use fixture::{Ports, no_policies};

async fn ask(method: &str, path: &str, body: impl Into<Body>) -> (u16, Value) {
    let answer = Ports::open().await.plain(method, path, body).await;
    (answer.status, answer.body)
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
        owner_metadata: Default::default(),
        reset_generation: 0,
    };
    let mut partition = IPUPartition::new("p", spec);
    partition.status = Some(IPUPartitionStatus {
        attempts: vec![samples::attempt(samples::controller(), "p-mnist", outcome)],
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
        unschedulable: None,
        unreachable: unreachable.map(str::to_owned),
        total_ipus,
        used_ipus,
        largest_free: 0,
        free_blocks: Vec::new(),
        failures: 0,
    }
}

#[tokio::test]
async fn a_query_answers_without_free_capacity_too() {
    let (status, answer) = ask("POST", "/query", r#"{"size": 2}"#).await;
    assert_eq!(status, 200);
    insta::assert_json_snapshot!(answer, @r#"
    {
      "available": true,
      "controller": null,
      "decision": "wait",
      "largestSize": 0,
      "message": "",
      "numOfPartitions": 0,
      "overruled": "no placement guest is loaded",
      "passedOver": [],
      "reason": null
    }
    "#);
}

#[tokio::test]
async fn a_wrong_size_is_named_with_its_rule() {
    let sizes = [
        "0",
        "3",
        "-1",
        "2.5",
        "4294967296",
        "1e99",
        "\"2\"",
        "\"four\"",
        "null",
        "[]",
        "{}",
        "true",
    ];
    for size in sizes {
        let (status, fault) = ask("POST", "/query", format!("{{\"size\": {size}}}")).await;
        assert_eq!(status, 400, "{size}");
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
        assert_eq!(status, 400);
        assert_eq!(fault["field"], "body", "{fault}");
        assert!(fault["value"].as_str().unwrap().chars().count() <= 81);
    }
}

#[tokio::test]
async fn a_huge_body_is_not_read() {
    let (status, fault) = ask("POST", "/query", vec![b' '; 10 << 20]).await;
    assert_eq!(status, 413);
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
        assert_eq!(found, status, "{method} {path}");
        assert_eq!(fault["field"], field, "{method} {path}");
    }
}

#[tokio::test]
async fn it_is_alive_at_once_and_ready_when_the_partitions_are_known() {
    let ports = Ports::open().await;
    let alive = ports.plain("GET", "/health", "").await;
    assert_eq!((alive.status, alive.body), (200, json!({"status": "ok"})));
    let early = ports.plain("GET", "/readyz", "").await;
    let missing = json!({"status": "the IPUPartitions are not read yet"});
    assert_eq!((early.status, early.body), (503, missing));
    ports.apply_event(Event::Init);
    ports.apply_event(Event::InitDone);
    let ready = ports.plain("GET", "/readyz", "").await;
    assert_eq!((ready.status, ready.body), (200, json!({"status": "ok"})));
}

/// The answer without policies and requests of others.
async fn answer(query: &QueryRequest, views: &[ControllerView]) -> what_if::Answer {
    let policies = no_policies().await;
    what_if::answer(&policies, query, PlacementContext::default(), views).await
}

#[tokio::test]
async fn old_clients_find_their_three_keys_first_and_as_they_were() {
    let query = query_request::read(br#"{"size": 2}"#).unwrap();
    let views = [controller(16, 3, None)];
    let answer = answer(&query, &views).await;
    let text = serde_json::to_string(&answer).unwrap();
    let known = r#"{"available":true,"numOfPartitions":6,"message":"","#;
    assert!(text.starts_with(known), "{text}");
}

/// A reachable controller with this name.
fn named(name: &str, total_ipus: u32, used_ipus: u32, largest_free: u32) -> ControllerView {
    ControllerView {
        name: name.to_owned(),
        largest_free,
        failures: 0,
        ..controller(total_ipus, used_ipus, None)
    }
}

#[tokio::test]
async fn a_question_is_answered_by_the_policy_with_the_reasons_of_those_before() {
    let down = controller(0, 0, Some("connection refused"));
    let views = [
        named("small:8090", 8, 0, 8),
        named("full:8090", 32, 32, 0),
        named("free:8090", 32, 0, 32),
        named("free-too:8090", 64, 0, 64),
    ];
    let policies = no_policies().await;
    let ask = async |body: &str, views: &[ControllerView]| {
        let query = query_request::read(body.as_bytes()).unwrap();
        let context = PlacementContext::default();
        let answer = what_if::answer(&policies, &query, context, views);
        answer.await.placement
    };
    let tried = ask(r#"{"size": 16}"#, &views).await;
    assert_eq!(tried.controller.as_deref(), Some("free:8090"));
    assert_eq!(tried.largest_size, Some(64));
    let passed: Vec<_> = tried
        .passed_over
        .iter()
        .map(|one| one.controller.as_str())
        .collect();
    assert_eq!(passed, ["small:8090", "full:8090"]);
    assert!(
        tried.passed_over[0].reason.contains("8 IPUs in all"),
        "{tried:?}"
    );

    // If none of the earlier controllers could ever serve it, the guest is called for each alone.
    let small = [
        named("a:1", 4, 0, 4),
        named("b:1", 8, 0, 8),
        named("c:1", 16, 0, 16),
    ];
    let tried = ask(r#"{"size": 16}"#, &small).await;
    let reasons: Vec<_> = tried
        .passed_over
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    assert!(
        reasons[0].contains("has 4 IPUs") && reasons[1].contains("has 8 IPUs"),
        "{reasons:?}"
    );

    let waits = ask(r#"{"size": 64}"#, &[views[1].clone(), down]).await;
    assert_eq!(
        (waits.decision, waits.controller),
        (what_if::Outcome::Wait, None)
    );
    assert_eq!(waits.passed_over.len(), 2);
    let other =
        r#"{"size": 1, "nodeSelector": {"vipu": "elsewhere"}, "namespace": "a", "gcds": 1}"#;
    let rejected = ask(other, &views).await;
    assert_eq!(rejected.decision, what_if::Outcome::Reject);
    assert!(rejected.reason.unwrap().contains("vipu=elsewhere"));
}

#[tokio::test]
async fn wrong_parts_of_a_question_are_named() {
    for (body, field) in [
        (r#"{"size": 2, "gcds": 0}"#, "gcds"),
        (r#"{"size": 2, "gcds": 4}"#, "gcds"),
        (r#"{"size": 2, "gcds": "one"}"#, "gcds"),
        (r#"{"size": 2, "gangSize": 0}"#, "gangSize"),
        (r#"{"size": 2, "namespace": 1}"#, "namespace"),
        (r#"{"size": 2, "nodeSelector": []}"#, "nodeSelector"),
        (r#"{"size": 2, "nodeSelector": {"a": 1}}"#, "nodeSelector.a"),
    ] {
        let (status, fault) = ask("POST", "/query", body).await;
        assert_eq!(
            (status, fault["field"].as_str()),
            (400, Some(field)),
            "{body}: {fault}"
        );
    }
    let (status, _) = ask("POST", "/query", r#"{"size": 2, "other": 1}"#).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn what_many_controllers_have_is_asked_of_the_policy_in_a_moment() {
    let views: Vec<_> = (0..256)
        .map(|number| ControllerView {
            name: format!("pod{number}:8090"),
            largest_free: if number == 255 { 64 } else { 0 },
            failures: 0,
            ..controller(64, 64, None)
        })
        .collect();
    let query = query_request::read(br#"{"size": 64}"#).unwrap();
    let answer = answer(&query, &views).await;
    assert_eq!(answer.placement.controller.as_deref(), Some("pod255:8090"));
    assert_eq!(answer.placement.passed_over.len(), 255);
}
