//! The simulator as its users run it: orders over HTTP, and partitions that outlive the process.

use std::time::Duration;

use cluster::wait::{Seen, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vipu_client::model::ReadyState;
use vipu_simulator::pod::PartitionSpec;
use vipu_simulator::{Options, Simulator, StartError};

use super::{client, partition, pod1};

/// One request to the control port: the status code and the body.
async fn control(simulator: &Simulator, request: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(simulator.control).await.unwrap();
    let text = format!(
        "{request} HTTP/1.1\r\nHost: simulator\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn state(simulator: &Simulator) -> Value {
    let (status, body) = control(simulator, "GET /state", "").await;
    assert_eq!(status, 200);
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn faults_are_ordered_shown_and_removed_over_http() {
    let simulator = pod1().await;
    let client = client(&simulator);
    let order = json!({
        "method": "CreatePartition",
        "times": 1,
        "fail": {"code": "RESOURCE_EXHAUSTED", "message": "ordered"},
    });
    let (status, body) = control(&simulator, "POST /faults", &order.to_string()).await;
    assert_eq!((status, &*body), (200, "{\"number\":1}"));
    assert_eq!(state(&simulator).await["faults"][0]["order"]["times"], 1);
    let error = client.create(&partition("p-1", 4)).await.unwrap_err();
    assert_eq!(
        error.reason(),
        "it refused CreatePartition: ordered (ResourceExhausted)"
    );
    assert_eq!(state(&simulator).await["faults"], json!([]));
    client.create(&partition("p-1", 4)).await.unwrap();

    let (status, body) = control(&simulator, "GET /calls?after=1", "").await;
    let calls: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(calls[0]["partition"], "p-1");
    assert_eq!(calls[0]["outcome"], "ok");

    let (status, _) = control(&simulator, "POST /faults", r#"{"slow_ms": 1}"#).await;
    assert_eq!(status, 200);
    assert_eq!(control(&simulator, "DELETE /faults/2", "").await.0, 200);
    let (status, body) = control(&simulator, "DELETE /faults/2", "").await;
    assert_eq!(status, 404);
    assert!(body.contains("order 2 is not active"), "{body}");
}

#[tokio::test]
async fn partitions_are_created_broken_and_removed_over_http() {
    let simulator = pod1().await;
    let client = client(&simulator);
    let wanted = r#"{"id": "by-hand", "ipus": 8}"#;
    assert_eq!(control(&simulator, "POST /partitions", wanted).await.0, 200);
    assert_eq!(control(&simulator, "POST /partitions", wanted).await.0, 409);
    assert_eq!(state(&simulator).await["free"], 8);
    let body = r#"{"message": "agent lost", "needs_force": true}"#;
    let (status, _) = control(&simulator, "POST /partitions/by-hand/error", body).await;
    assert_eq!(status, 200);
    let seen = client.status("by-hand").await.unwrap();
    assert_eq!(seen.ready_state, ReadyState::Error);
    assert_eq!(seen.errors, ["agent lost"]);
    client.remove("by-hand", false).await.unwrap_err();

    let (status, _) = control(&simulator, "POST /partitions/by-hand/auto-reset", "").await;
    assert_eq!(status, 200);
    let active = eventually("the partition is active again", async || {
        let seen = client.status("by-hand").await.unwrap();
        Seen::when(seen, |seen| seen.ready_state == ReadyState::Active)
    })
    .await;
    let resets = active.auto_resets.unwrap();
    assert_eq!((resets.count, resets.max), (1, 3));
    assert!(resets.last_time.is_some());
    let (status, _) = control(&simulator, "DELETE /partitions/by-hand", "").await;
    assert_eq!(status, 200);
    let (status, body) = control(&simulator, "DELETE /partitions/by-hand", "").await;
    assert_eq!(status, 404);
    assert_eq!(body, r#"{"error":"there is no partition \"by-hand\""}"#);
}

#[tokio::test]
async fn invalid_input_on_either_port_affects_nobody() {
    let simulator = pod1().await;
    for (request, body, expected) in [
        ("POST /faults", "{", 400),
        ("POST /faults", r#"{"loose_reply": "cut"}"#, 422),
        ("PUT /codes", r#"{"full": "FULL"}"#, 422),
        ("PUT /timings", r#"{"forming_ms": -1}"#, 422),
        ("POST /partitions", r#"{"id": "p", "ipus": 3}"#, 400),
        ("GET /nowhere", "", 404),
    ] {
        let (status, text) = control(&simulator, request, body).await;
        assert_eq!(status, expected, "{request}: {text}");
    }
    let mut stream = TcpStream::connect(simulator.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut reply)).await;
    assert!(ended.is_ok(), "the connection stayed open");
    assert_eq!(client(&simulator).version().await.unwrap(), "1.18.0");
}

#[tokio::test]
async fn partitions_outlive_the_process_where_they_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        file: Some(folder.path().join("pod1.json")),
        ..Options::quick("pod1", 16)
    };
    let first = Simulator::start(options.clone()).await.unwrap();
    client(&first).create(&partition("p-1", 4)).await.unwrap();
    let by_hand = PartitionSpec {
        id: "by-hand".to_owned(),
        ipus: 8,
        ..PartitionSpec::default()
    };
    first
        .server
        .with(|world, now| world.pod.take(&by_hand, now))
        .unwrap();
    drop(first);
    let second = Simulator::start(options.clone()).await.unwrap();
    assert_eq!(client(&second).list().await.unwrap().len(), 2);
    assert_eq!(client(&second).inventory().await.unwrap().free(), 4);

    let other = Options {
        ipus: 64,
        ..options.clone()
    };
    let error = Simulator::start(other).await.unwrap_err();
    assert!(matches!(error, StartError::OtherPod { .. }), "{error}");
    std::fs::write(folder.path().join("pod1.json"), "{").unwrap();
    let error = Simulator::start(options).await.unwrap_err();
    assert!(matches!(error, StartError::Load { .. }), "{error}");
}
