//! The webhook of Pods over HTTP, on a host without guests: every question to a guest fails.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_policies::active_policies::ActivePolicies;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::server::{WebhookContext, router};
use crate::{MUTATE_POD_PATH, VALIDATE_POD_PATH};

/// The response to a review of a Pod.
async fn ask(operation: &str, annotations: &Value) -> Value {
    let spec = json!({"containers": [{"name": "main", "image": "a:1"}]});
    ask_about(operation, annotations, &spec).await
}

/// The response to a review of a Pod with this spec, before defaults.
async fn ask_about(operation: &str, annotations: &Value, spec: &Value) -> Value {
    ask_at(MUTATE_POD_PATH, operation, annotations, spec).await
}

/// The response of the webhook at this path.
async fn ask_at(path: &str, operation: &str, annotations: &Value, spec: &Value) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74", "namespace": "team", "operation": operation,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {
                "metadata": {"generateName": "web-", "annotations": annotations},
                "spec": spec,
            },
            "oldObject": {"metadata": {}, "spec": {}},
        },
    });
    let (status, text) = call(path, review.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let mut answer: Value = serde_json::from_str(&text).unwrap();
    answer["response"].take()
}

async fn call(path: &str, body: String) -> (StatusCode, String) {
    let host = GuestHost::open(GuestHostOptions::default()).await;
    let active = ActivePolicies::new(host.unwrap());
    let namespaces = ipu_policies::namespace_usage::namespaces().0;
    let routes = router(active, namespaces, WebhookContext::default());
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("content-length", body.len())
        .body(Body::from(body));
    let response = routes.oneshot(request.unwrap()).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_pod_without_a_request_or_not_new_passes_without_any_guest() {
    let passed = json!({"uid": "0c9a8d74", "allowed": true});
    assert_eq!(ask("CREATE", &json!({})).await, passed);
    let requesting = json!({"graphcore.ai/ipu": "4"});
    for operation in ["UPDATE", "DELETE"] {
        assert_eq!(ask(operation, &requesting).await, passed);
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused_in_the_fields_of_the_pod() {
    let response = ask("CREATE", &json!({"graphcore.ai/ipu": "four"})).await;
    assert_eq!(response["allowed"], json!(false));
    let status = &response["status"];
    assert_eq!(status["code"], json!(422));
    assert_eq!(status["details"]["kind"], json!("Pod"));
    assert_eq!(
        status["details"]["causes"][0]["field"],
        json!("metadata.annotations[graphcore.ai/ipu]")
    );
}

#[tokio::test]
async fn defaulting_guests_are_asked_about_new_ipus_alone() {
    let response = ask("CREATE", &json!({"graphcore.ai/ipu": "4"})).await;
    assert_eq!(response["allowed"], json!(false));
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("no defaulting guest is loaded"),
        "{message}"
    );
    let response = ask("CREATE", &json!({"graphcore.ai/partition": "shared"})).await;
    assert_eq!(response["allowed"], json!(true));
    assert_eq!(response["patchType"], json!("JSONPatch"));
}

#[tokio::test]
async fn a_pod_with_ipus_cannot_name_its_node() {
    let spec = json!({"nodeName": "node-1", "containers": [{"name": "main", "image": "a:1"}]});
    let response = ask_about(
        "CREATE",
        &json!({"graphcore.ai/partition": "shared"}),
        &spec,
    )
    .await;
    let cause = &response["status"]["details"]["causes"][0];
    assert_eq!(cause["field"], json!("spec.nodeName"));
    let message = cause["message"].as_str().unwrap();
    assert!(message.contains("spec.nodeSelector"), "{message}");
    let response = ask_about("CREATE", &json!({}), &spec).await;
    assert_eq!(response["allowed"], json!(true));
}

#[tokio::test]
async fn a_debug_copy_passes_with_a_warning_and_without_guests() {
    let copied = json!({"graphcore.ai/ipu": "4", "graphcore.ai/vipu-host": "pod1"});
    let response = ask("CREATE", &copied).await;
    assert_eq!(response["allowed"], json!(true));
    assert_eq!(response["patchType"], json!("JSONPatch"));
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(warning.contains("runs without IPUs"), "{warning}");
    assert!(warning.ends_with("of its own"), "it is complete: {warning}");
}

#[tokio::test]
async fn another_kind_is_no_question_for_this_webhook() {
    let review = crate::request::tests::review(|_| {});
    let (status, text) = call(MUTATE_POD_PATH, review.to_string()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        text.contains("reviews \"Pod\"") && text.contains("pods"),
        "{text}"
    );
}

#[tokio::test]
async fn rules_decide_on_a_new_pod_and_on_its_changes() {
    let spec = json!({"containers": [{"name": "main", "image": "a:1"}]});
    let requesting = json!({"graphcore.ai/ipu": "4"});
    let sharing = json!({"graphcore.ai/partition": "shared"});
    for (operation, annotations) in [
        ("CREATE", &requesting),
        ("UPDATE", &requesting),
        ("CREATE", &sharing),
        ("UPDATE", &sharing),
    ] {
        let response = ask_at(VALIDATE_POD_PATH, operation, annotations, &spec).await;
        let message = response["status"]["message"].as_str().unwrap();
        assert!(
            message.contains("no validation guest is loaded"),
            "{message}"
        );
    }
    let passed = json!({"uid": "0c9a8d74", "allowed": true});
    for (operation, annotations) in [
        ("DELETE", requesting),
        ("CREATE", json!({})),
        // It cannot have come with the update.
        ("UPDATE", json!({"graphcore.ai/ipu": "four"})),
    ] {
        let response = ask_at(VALIDATE_POD_PATH, operation, &annotations, &spec).await;
        assert_eq!(response, passed, "{operation} {annotations}");
    }
    let unreadable = json!({"graphcore.ai/ipu": "four"});
    let response = ask_at(VALIDATE_POD_PATH, "CREATE", &unreadable, &spec).await;
    assert_eq!(response["status"]["code"], json!(422));
}
