//! The metrics over HTTP, in-process, around a fake of the API server that reviews tokens and
//! rights.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, Response};
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_policies::active_policies::ActivePolicies;
use ipu_ports::metrics::Refused;
use kube::Client;
use kube::client::Body as KubeBody;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tower::{BoxError, ServiceExt, service_fn};

use super::endpoint::router;
use super::{Exposed, Metrics};

/// Requests to the API server.
type Requests = Arc<Mutex<Vec<Value>>>;

/// `reader` may read metrics; `stranger` is unknown.
fn review(mut review: Value) -> Value {
    let spec = &review["spec"];
    review["status"] = match spec["token"].as_str() {
        Some("stranger") => json!({"authenticated": false}),
        Some(token) => json!({"authenticated": true, "user": {"username": token}}),
        None => {
            let wanted = json!({"path": "/metrics", "verb": "get"});
            let is_wanted = spec["nonResourceAttributes"] == wanted;
            json!({"allowed": is_wanted && spec["user"] == "reader"})
        }
    };
    review
}

fn serve(exposed: Exposed, client: Client) -> Router {
    router(exposed, client, ("metrics", Refused::default()))
}

fn api_server(requests: &Requests) -> Client {
    let requests = Arc::clone(requests);
    let service = service_fn(move |request: Request<KubeBody>| {
        let requests = Arc::clone(&requests);
        async move {
            let body = request.into_body().collect_bytes().await?;
            let body: Value = serde_json::from_slice(&body)?;
            requests.lock().unwrap().push(body["spec"].clone());
            let answer = KubeBody::from(review(body).to_string().into_bytes());
            Ok::<_, BoxError>(Response::builder().status(201).body(answer).unwrap())
        }
    });
    Client::new(service, "default")
}

async fn exposed(metrics: &Metrics) -> Exposed {
    let policies = GuestHost::open(GuestHostOptions::default());
    metrics.of_controller(ActivePolicies::new(policies.await.unwrap()))
}

async fn ask(router: &Router, token: Option<&str>, accept: &str) -> (u16, HeaderMap, String) {
    let mut request = Request::get("/metrics").header("accept", accept);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).unwrap();
    let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    (head.status.as_u16(), head.headers, text)
}

#[tokio::test]
async fn only_who_has_a_token_and_the_right_reads_metrics() {
    let requests = Requests::default();
    let router = serve(exposed(&Metrics::default()).await, api_server(&requests));
    let (status, headers, _) = ask(&router, None, "*/*").await;
    assert_eq!(status, 401);
    assert!(headers.contains_key("www-authenticate"));
    assert!(requests.lock().unwrap().is_empty(), "nothing to ask about");

    let (status, _, text) = ask(&router, Some("stranger"), "*/*").await;
    assert_eq!(status, 401, "{text}");
    let (status, _, text) = ask(&router, Some("other"), "*/*").await;
    assert_eq!(status, 403);
    for part in [
        "other may not get /metrics",
        "metrics-reader",
        "--user=other",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    requests.lock().unwrap().clear();
    for _ in 0..3 {
        let (status, _, text) = ask(&router, Some("reader"), "*/*").await;
        assert_eq!(status, 200, "{text}");
        assert!(
            text.contains("\nipu_operator_build_info{version=\""),
            "{text}"
        );
        assert!(
            text.contains("\nipu_operator_jobs{phase=\"Running\"} 0\n"),
            "{text}"
        );
    }
    let tokens = requests.lock().unwrap().clone().into_iter();
    let tokens: Vec<_> = tokens.filter(|spec| !spec["token"].is_null()).collect();
    assert_eq!(
        tokens,
        [json!({"token": "reader"})],
        "a good token is remembered"
    );
}

#[tokio::test]
async fn everybody_gets_open_metrics_with_exemplars() {
    let metrics = Metrics::default();
    let took = std::time::Duration::from_millis(3);
    metrics
        .admission
        .record("validation", "refused", Some("a-uid"), took);
    let router = serve(exposed(&metrics).await, api_server(&Requests::default()));
    let sample = "ipu_operator_admission_duration_seconds_bucket{le=\"0.005\",webhook=\"validation\",\
        verdict=\"refused\"} 1";
    // The `Accept` headers of Prometheus 3, of curl, and of a client for an older format.
    let of_prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
        text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    for accept in [of_prometheus, "*/*", "text/plain"] {
        let (_, headers, text) = ask(&router, Some("reader"), accept).await;
        assert_eq!(
            headers["content-type"],
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        );
        let exemplar = format!("\n{sample} # {{request_uid=\"a-uid\"}} 0.003");
        assert!(text.contains(&exemplar), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
