//! The page of an IPUJob as its clients see it.

use axum::http::StatusCode;
use kube::runtime::watcher::Event;

use super::{FORBIDDEN, Kind, PARTITION, Partition, Server};

const JOB: &str = r#"{
    "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
    "metadata": {"namespace": "a", "name": "train", "uid": "u1", "creationTimestamp": "2026-01-02T12:00:00Z"}
}"#;

#[tokio::test]
async fn a_job_is_read_with_its_advice_and_missing_rights_are_named() {
    let jobs = "/apis/graphcore.ai/v1alpha1/namespaces/a/ipujobs";
    let server = Server::new(&[
        (
            "/apis/graphcore.ai/v1alpha1/namespaces/a/ipujobs/train",
            200,
            JOB,
        ),
        (
            "/apis/graphcore.ai/v1alpha1/namespaces/a/ipujobs/hidden",
            403,
            FORBIDDEN,
        ),
        (
            "/apis/graphcore.ai/v1alpha1/namespaces/a/ipujobs/gone",
            404,
            r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}"#,
        ),
        (
            "/apis/graphcore.ai/v1alpha1/ipupartitions/a.train-0",
            200,
            PARTITION,
        ),
        ("/api/v1/namespaces/a/pods", 403, FORBIDDEN),
        ("/api/v1/namespaces/a/events", 403, FORBIDDEN),
    ]);
    let (status, json) = server.json("job/a/train").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(json["advice"][0], "wait");
    let described = json["notShown"].to_string();
    for part in [
        "the IPUPartitions: you may not list them",
        "the Pods: pods is forbidden (an admin",
        "the events: pods is forbidden",
    ] {
        assert!(described.contains(part), "{described}");
    }
    assert_eq!(server.asked.lock()[0], format!("{jobs}/train"));

    // Only the partitions of the job are read.
    server.shared.update(Kind::Partitions, |cluster| {
        cluster.partitions.apply(Event::Init, Partition::of);
        let own = serde_json::from_str(PARTITION).unwrap();
        cluster
            .partitions
            .apply(Event::InitApply(own), Partition::of);
        cluster.partitions.apply(Event::InitDone, Partition::of);
    });
    let (_, json) = server.json("job/a/train").await;
    assert_eq!(json["partitions"][0]["name"], "a.train-0");

    let (status, _) = server.json("job/a/hidden").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, json) = server.json("job/a/gone").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let words = json["message"].as_str().unwrap();
    assert!(words.contains("there is no IPUJob a/gone"), "{words}");
}
