//! Which policies of a chain decide about a request, on a host without modules: the guest of each
//! gives no answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use ipu_api::ipupolicy::{CallCounts, Hook, OnError};
use ipu_guest_host::{BUILT_IN, Guest, GuestHost, GuestHostOptions, Limits};
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_policies::bound_policy::{AwaitedPolicy, BoundPolicy};
use ipu_policies::matcher::Matcher;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::request::tests::{review, updating};
use crate::server::{WebhookContext, router};
use crate::{VALIDATE_PATH, VALIDATE_POD_PATH};

/// A validation policy with this `spec.match`.
fn policy(matched: Value) -> BoundPolicy {
    let matched = serde_json::from_value(matched).unwrap();
    BoundPolicy {
        name: "mine".into(),
        guest: Guest::missing("its registry is down"),
        matcher: Arc::new(Matcher::new(Hook::Validation, Some(&matched)).unwrap()),
        ..BoundPolicy::built_in(Hook::Validation)
    }
}

/// Active policies of which this one alone validates.
async fn active(options: GuestHostOptions, policy: BoundPolicy) -> ActivePolicies {
    let active = ActivePolicies::new(GuestHost::open(options).await.unwrap());
    let chain = HookChain {
        stages: vec![vec![policy]],
        ..HookChain::default()
    };
    active.set_chain(Hook::Validation, chain);
    active
}

/// The response to a review.
async fn ask(active: &ActivePolicies, path: &str, review: &Value) -> Value {
    let namespaces = ipu_policies::namespace_usage::namespaces().0;
    let routes = router(active.clone(), namespaces, WebhookContext::default());
    let body = review.to_string();
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("content-length", body.len())
        .body(Body::from(body));
    let response = routes.oneshot(request.unwrap()).await.unwrap();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let mut answer: Value = serde_json::from_slice(&body).unwrap();
    answer["response"].take()
}

/// The review of an IPUJob whose labels become these.
fn relabelled_job(old: &Value, new: &Value) -> Value {
    review(|review| {
        review["request"]["object"]["metadata"]["labels"] = new.clone();
        updating(|object| object["metadata"]["labels"] = old.clone())(&mut review["request"]);
    })
}

/// The review of a Pod that requests IPUs, whose labels become these.
fn relabelled_pod(old: &Value, new: &Value) -> Value {
    review(|review| {
        let request = &mut review["request"];
        request["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
        request["object"] = json!({
            "metadata": {"name": "web", "annotations": {"graphcore.ai/ipu": "4"}, "labels": new},
            "spec": {"containers": [{"name": "main", "image": "a:1"}]},
        });
        updating(|object| object["metadata"]["labels"] = old.clone())(request);
    })
}

#[tokio::test]
async fn a_busy_process_makes_clients_repeat_the_request_whatever_on_error_says() {
    // No permit is left for built-in guests.
    let limits = Limits {
        reserved: 0,
        queue: Duration::ZERO,
        ..Limits::default()
    };
    for on_error in [OnError::Fail, OnError::Ignore] {
        let policy = BoundPolicy {
            guest: BUILT_IN.clone(),
            on_error,
            ..policy(json!({}))
        };
        let options = GuestHostOptions {
            limits,
            ..GuestHostOptions::default()
        };
        let active = active(options, policy.clone()).await;
        let response = ask(&active, VALIDATE_PATH, &review(|_| {})).await;
        assert_eq!(response["allowed"], json!(false), "{on_error:?}");
        let mut status = response["status"].clone();
        let message = status["message"].take();
        let message = message.as_str().unwrap();
        for part in ["IPUPolicy mine", "busy", "The object is not the cause"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let expected = json!({
            "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": null,
            "details": {"retryAfterSeconds": 2},
        });
        assert_eq!(status, expected, "{on_error:?}");
        assert_eq!(
            response["auditAnnotations"],
            Value::Null,
            "nothing is ignored"
        );
        // It counts neither for a rollback nor for a promotion.
        assert_eq!(policy.stats.counts().recent, CallCounts::default());
        assert_eq!(policy.stats.counts().calls, CallCounts::default());
    }
}

/// Active policies beside a new one, which is not active yet and selects this label.
async fn awaiting(label: &Value) -> ActivePolicies {
    let host = GuestHost::open(GuestHostOptions::default()).await;
    let active = ActivePolicies::new(host.unwrap());
    let matched = json!({"objectSelector": {"matchLabels": label}});
    let awaited = AwaitedPolicy {
        name: "new".into(),
        matcher: policy(matched).matcher,
        reason: "its module is being loaded".to_owned(),
    };
    let chain = HookChain {
        awaited: vec![awaited],
        ..HookChain::default()
    };
    active.set_chain(Hook::Validation, chain);
    active
}

#[tokio::test]
async fn a_request_waits_for_a_matching_policy_that_is_not_active_yet() {
    let (a, b) = (json!({"team": "a"}), json!({"team": "b"}));
    let active = awaiting(&a).await;
    for (path, waits, passes) in [
        (
            VALIDATE_PATH,
            relabelled_job(&b, &a),
            relabelled_job(&json!({}), &b),
        ),
        (
            VALIDATE_POD_PATH,
            relabelled_pod(&a, &b),
            relabelled_pod(&json!({}), &b),
        ),
    ] {
        let response = ask(&active, path, &waits).await;
        assert_eq!(response["status"]["code"], json!(429), "{path}: {response}");
        assert_eq!(
            response["status"]["details"],
            json!({"retryAfterSeconds": 2})
        );
        let message = response["status"]["message"].as_str().unwrap();
        for part in [
            "IPUPolicy new is not active yet",
            "Wait: its module is being loaded",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let response = ask(&active, path, &passes).await;
        assert_eq!(response["allowed"], json!(true), "{path}: {response}");
    }
}

#[tokio::test]
async fn deletion_finalizers_and_the_status_wait_for_no_policy() {
    let a = json!({"team": "a"});
    let active = awaiting(&a).await;
    let unreviewed = [
        review(|review| {
            review["request"]["operation"] = json!("DELETE");
            review["request"]["oldObject"] = review["request"]["object"].take();
        }),
        review(|review| {
            let request = &mut review["request"];
            request["object"]["metadata"]["labels"] = a.clone();
            request["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
            updating(|object| object["spec"] = json!({}))(request);
        }),
        review(|review| {
            let request = &mut review["request"];
            request["object"]["metadata"]["labels"] = a.clone();
            request["object"]["metadata"]["finalizers"] = json!(["a/b"]);
            request["object"]["status"] = json!({"state": "Running"});
            updating(|object| {
                object["metadata"]["finalizers"] = Value::Null;
                object["status"] = Value::Null;
            })(request);
        }),
    ];
    for review in unreviewed {
        let response = ask(&active, VALIDATE_PATH, &review).await;
        assert_eq!(response["allowed"], json!(true), "{review}: {response}");
    }
}

#[tokio::test]
async fn a_rule_still_decides_about_the_update_that_removes_its_label() {
    let selected = json!({"objectSelector": {"matchLabels": {"team": "a"}}});
    let active = active(GuestHostOptions::default(), policy(selected)).await;
    let (a, b) = (json!({"team": "a"}), json!({"team": "b"}));
    for (old, new, is_refused) in [
        (&a, &json!({}), true),
        (&a, &b, true),
        (&b, &a, true),
        (&b, &json!({}), false),
    ] {
        for (path, review) in [
            (VALIDATE_PATH, relabelled_job(old, new)),
            (VALIDATE_POD_PATH, relabelled_pod(old, new)),
        ] {
            let response = ask(&active, path, &review).await;
            assert_eq!(
                response["allowed"],
                json!(!is_refused),
                "{path}: {old} to {new}"
            );
            let message = response["status"]["message"].as_str().unwrap_or_default();
            assert_eq!(message.contains("IPUPolicy mine"), is_refused, "{message}");
        }
    }
}
