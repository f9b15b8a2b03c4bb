//! The routes of the webhooks over HTTP, on a host without guests.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{WebhookContext, router};
use crate::intake::BODY_LIMIT;
use crate::request::tests::{review, updating};
use crate::{MUTATE_PATH, VALIDATE_PATH, VALIDATE_SCALE_PATH};
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_policies::active_policies::ActivePolicies;
use ipu_runtime::scope::Conflicts;
use ipu_runtime::scope::conflict::Claim;

/// A host without modules: every call of a policy fails.
async fn call(request: Request<Body>) -> (StatusCode, String) {
    call_with(Conflicts::default(), request).await
}

async fn call_with(conflicts: Conflicts, request: Request<Body>) -> (StatusCode, String) {
    let host = GuestHost::open(GuestHostOptions::default());
    let active = ActivePolicies::new(host.await.unwrap());
    let namespaces = ipu_policies::namespace_usage::namespaces().0;
    let context = WebhookContext {
        conflicts,
        ..WebhookContext::default()
    };
    let routes = router(active, namespaces, context);
    let response = routes.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn post(path: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Request<Body> {
    let body = body.into();
    Request::post(path)
        .header("content-type", content_type)
        .header("content-length", body.len())
        .body(body.into())
        .unwrap()
}

async fn ask(path: &str, review: Value) -> Value {
    let body = review.to_string();
    let (status, text) = call(post(path, "application/json; charset=utf-8", body)).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_malformed_review_is_rejected() {
    let json = "application/json";
    for (request, status, expected) in [
        (post(MUTATE_PATH, json, ""), 400, "empty"),
        (post(VALIDATE_PATH, json, "{"), 400, "EOF"),
        (
            post(VALIDATE_PATH, json, vec![0xff_u8; 64]),
            400,
            "expected value",
        ),
        (
            post(MUTATE_PATH, json, "{\"kind\":\"Pod\"}"),
            400,
            "\"Pod\"",
        ),
        (post(MUTATE_PATH, "text/plain", "{}"), 415, "text/plain"),
        (post(MUTATE_PATH, "", "{}"), 415, "application/json"),
        (post("/mutate", json, "{}"), 404, MUTATE_PATH),
        (
            Request::get(MUTATE_PATH).body(Body::empty()).unwrap(),
            405,
            "POST",
        ),
        (
            post(MUTATE_PATH, json, vec![b' '; BODY_LIMIT + 1]),
            413,
            "8388608",
        ),
    ] {
        let what = format!("{} {}", request.method(), request.uri());
        let (found, text) = call(request).await;
        assert_eq!(found.as_u16(), status, "{what}: {text}");
        assert!(text.contains(expected), "{what}: {text}");
    }
}

#[tokio::test]
async fn without_a_policy_nothing_new_is_admitted() {
    for (path, slot) in [(MUTATE_PATH, "defaulting"), (VALIDATE_PATH, "validation")] {
        let answer = ask(path, review(|_| {})).await;
        assert_eq!(answer["response"]["allowed"], json!(false));
        assert_eq!(answer["response"]["uid"], json!("0c9a8d74"));
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("no {slot} guest is loaded")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_inactive_release_leaves_objects_of_another_one_alone() {
    let standby_answer = |theirs: &str| {
        let older = ["else", theirs].map(|scope| Claim {
            configuration: format!("for-{scope}"),
            namespace: "ops".to_owned(),
            scope: scope.parse().unwrap(),
            since: Some(jiff::Timestamp::UNIX_EPOCH),
        });
        Conflicts::with(&older)
    };
    for path in [MUTATE_PATH, VALIDATE_PATH] {
        let body = review(|_| {}).to_string();
        let request = || post(path, "application/json", body.clone());
        let (_, text) = call_with(standby_answer("default"), request()).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            answer["response"],
            json!({ "uid": "0c9a8d74", "allowed": true })
        );
        let (_, text) = call_with(standby_answer("other"), request()).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["response"]["allowed"], json!(false));
        for part in ["namespace default", "in namespace ops", "watchNamespaces"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[tokio::test]
async fn a_change_of_the_scale_without_its_job_is_not_admitted() {
    let scaled = review(|review| {
        let request = &mut review["request"];
        request["kind"] = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        request["subResource"] = json!("scale");
        request["object"]["spec"] = json!({"replicas": 2});
        updating(|old| old["spec"] = json!({}))(request);
    });
    let answer = ask(VALIDATE_SCALE_PATH, scaled.clone()).await;
    assert_eq!(answer["response"]["allowed"], json!(false));
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(message.contains("cannot read IPUJobs"), "{message}");
    let (status, text) = call(post(VALIDATE_PATH, "application/json", scaled.to_string())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("\"Scale\" of \"autoscaling\""), "{text}");
}

#[tokio::test]
async fn nobody_is_locked_out_by_a_missing_policy() {
    type Change = fn(&mut Value);
    let exempt: [Change; 3] = [
        |request| updating(|old| old["metadata"]["finalizers"] = json!(["a/b"]))(request),
        |request| {
            updating(|old| old["spec"] = json!({}))(request);
            request["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        },
        |request| request["operation"] = json!("DELETE"),
    ];
    for change in exempt {
        for path in [MUTATE_PATH, VALIDATE_PATH] {
            let answer = ask(path, review(|review| change(&mut review["request"]))).await;
            assert_eq!(
                answer["response"],
                json!({ "uid": "0c9a8d74", "allowed": true })
            );
        }
    }
}
