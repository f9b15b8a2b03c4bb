//! Serves both webhooks: HTTP in, a policy's answer, HTTP out.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;
use tracing::{Instrument, Span, info, warn};

use super::answer::{Answer, Decision};
use super::request::{AdmissionRequest, parse};
use super::{MUTATE_PATH, VALIDATE_PATH};
use crate::metrics::admission::Admission;
use crate::namespaces::Namespaces;
use crate::policy::admission::Chain;
use crate::policy::guests::Guests;
use crate::scope::Conflicts;
use crate::telemetry::trace;
use crate::wasm::model::Operation;

/// Largest body that is read, in bytes. The API server takes objects of up to 3 MiB, and an update
/// brings two of them.
pub const BODY_LIMIT: usize = 8 << 20;

/// Longest time that a client may take to send its body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// What the answers are made from.
#[derive(Clone)]
struct Sources {
    guests: Guests,
    namespaces: Namespaces,
    counts: Admission,
    conflicts: Conflicts,
}

impl Sources {
    /// What a release answers that rests: nothing where one of the others serves the namespace, and
    /// elsewhere that nobody does.
    fn at_rest(&self, namespace: &str) -> Option<Answer> {
        let conflicts = self.conflicts.current();
        let first = conflicts.first()?;
        if conflicts.iter().any(|one| one.theirs.contains(namespace)) {
            return Some(Answer::nothing_to_say());
        }
        Some(Answer::failed(format!(
            "IPUJobs of namespace {namespace} are not served now, since their IPU operator rests: {}",
            first.message()
        )))
    }

    async fn defaulted(&self, operation: Operation, request: &AdmissionRequest) -> Answer {
        match self.at_rest(&request.namespace) {
            Some(answer) => answer,
            None => self.chain(operation, request).defaulted().await,
        }
    }

    async fn validated(&self, operation: Operation, request: &AdmissionRequest) -> Answer {
        match self.at_rest(&request.namespace) {
            Some(answer) => answer,
            None => self.chain(operation, request).validated().await,
        }
    }

    fn chain<'a>(&'a self, operation: Operation, request: &'a AdmissionRequest) -> Chain<'a> {
        let facts = self.namespaces.facts(&request.namespace, "");
        Chain::new(&self.guests, request, request.admission(operation, facts))
    }
}

/// The routes of both webhooks. Policies are told what is known of the namespaces, and answers are
/// counted.
pub fn router(
    guests: Guests,
    namespaces: Namespaces,
    counts: Admission,
    conflicts: Conflicts,
) -> Router {
    Router::new()
        .route(MUTATE_PATH, post(mutating).fallback(wrong_method))
        .route(VALIDATE_PATH, post(validating).fallback(wrong_method))
        .fallback(wrong_path)
        .with_state(Sources {
            guests,
            namespaces,
            counts,
            conflicts,
        })
}

async fn mutating(State(sources): State<Sources>, headers: HeaderMap, body: Body) -> Response {
    let began = Instant::now();
    let request = match read(&headers, body).await {
        Ok(request) => request,
        Err(refusal) => {
            let counts = &sources.counts;
            counts.answered("defaulting", "malformed", None, began.elapsed());
            return refusal.into_response();
        }
    };
    let answer = match request.operation {
        Some(operation) if request.concerns_policies() => {
            let defaulted = sources.defaulted(operation, &request);
            defaulted.instrument(span("defaulting", &request)).await
        }
        _ => Answer::nothing_to_say(),
    };
    let (uid, verdict) = (&request.uid, answer.decision.verdict());
    let counts = &sources.counts;
    counts.answered("defaulting", verdict, Some(uid), began.elapsed());
    reply("defaulting", &request, &answer)
}

async fn validating(State(sources): State<Sources>, headers: HeaderMap, body: Body) -> Response {
    let began = Instant::now();
    let request = match read(&headers, body).await {
        Ok(request) => request,
        Err(refusal) => {
            let counts = &sources.counts;
            counts.answered("validation", "malformed", None, began.elapsed());
            return refusal.into_response();
        }
    };
    let answer = match request.operation {
        Some(operation) if request.concerns_policies() => {
            let validated = sources.validated(operation, &request);
            validated.instrument(span("validation", &request)).await
        }
        _ => Answer::nothing_to_say(),
    };
    let (uid, verdict) = (&request.uid, answer.decision.verdict());
    let counts = &sources.counts;
    counts.answered("validation", verdict, Some(uid), began.elapsed());
    reply("validation", &request, &answer)
}

/// What every line of the log that comes of a request names. At an error's level, so that it always does.
fn span(webhook: &str, request: &AdmissionRequest) -> Span {
    let job = format!("{}/{}", request.namespace, request.name);
    // The API server gives a new object its UID between the two webhooks: defaulting has no part in the trace.
    let object = request.object.pointer("/metadata/uid");
    let object = object.and_then(Value::as_str).unwrap_or_default();
    let (uid, trace_id) = (&request.uid, trace::id(object));
    let span = tracing::error_span!("admission", webhook, job, uid, trace_id);
    trace::of_job(&span, object);
    span
}

fn reply(webhook: &str, request: &AdmissionRequest, answer: &Answer) -> Response {
    let _within = span(webhook, request).entered();
    match &answer.decision {
        Decision::Allowed | Decision::Patched(_) => tracing::debug!("admitted"),
        Decision::Refused(violations) => info!(?violations, "refused"),
        Decision::Failed(reason) => warn!(reason, "gave no answer"),
    }
    axum::Json::<Value>(answer.render(request)).into_response()
}

/// A call that is no admission review: its status, and what is wrong with it.
type Refusal = (StatusCode, String);

async fn read(headers: &HeaderMap, body: Body) -> Result<AdmissionRequest, Refusal> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let shown: String = essence.chars().take(80).collect();
        return Err(refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the content type is {shown:?}; \"application/json\" is expected"),
        ));
    }
    let bytes = tokio::time::timeout(BODY_TIME, to_bytes(body, BODY_LIMIT))
        .await
        .map_err(|_| {
            let text = format!("the body did not arrive within {} s", BODY_TIME.as_secs());
            refuse(StatusCode::REQUEST_TIMEOUT, text)
        })?
        .map_err(|error| {
            let text = format!(
                "the body cannot be read (the limit is {BODY_LIMIT} bytes): {}",
                crate::agent::explain(&error)
            );
            refuse(StatusCode::PAYLOAD_TOO_LARGE, text)
        })?;
    parse(&bytes).map_err(|error| refuse(StatusCode::BAD_REQUEST, error.to_string()))
}

async fn wrong_method() -> Refusal {
    refuse(
        StatusCode::METHOD_NOT_ALLOWED,
        "an AdmissionReview is sent by POST".to_owned(),
    )
}

async fn wrong_path() -> Refusal {
    refuse(
        StatusCode::NOT_FOUND,
        format!("the webhooks are at {MUTATE_PATH} and {VALIDATE_PATH}"),
    )
}

fn refuse(status: StatusCode, mut text: String) -> Refusal {
    warn!(%status, text, "a call of the webhooks was no admission review");
    text.push('\n');
    (status, text)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::{BODY_LIMIT, router};
    use crate::metrics::admission::Admission;
    use crate::policy::guests::Guests;
    use crate::scope::Conflicts;
    use crate::scope::conflict::Claim;
    use crate::wasm::{Policies, PolicyOptions};
    use crate::webhook::request::tests::{review, updating};
    use crate::webhook::{MUTATE_PATH, VALIDATE_PATH};

    /// A host without any module: every question to a policy fails.
    async fn call(request: Request<Body>) -> (StatusCode, String) {
        call_with(Conflicts::default(), request).await
    }

    async fn call_with(conflicts: Conflicts, request: Request<Body>) -> (StatusCode, String) {
        let policies = Policies::open(PolicyOptions::default());
        let guests = Guests::new(policies.await.unwrap());
        let namespaces = crate::namespaces::namespaces().0;
        let routes = router(guests, namespaces, Admission::default(), conflicts);
        let response = routes.oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn post(path: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
        Request::post(path)
            .header("content-type", content_type)
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
    async fn what_is_no_admission_review_is_told_so() {
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
                message.contains(&format!("no {slot} policy is loaded")),
                "{message}"
            );
        }
    }

    #[tokio::test]
    async fn a_release_that_rests_leaves_alone_what_another_one_serves() {
        let at_rest = |theirs: &str| {
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
            let (_, text) = call_with(at_rest("default"), request()).await;
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(
                answer["response"],
                json!({ "uid": "0c9a8d74", "allowed": true })
            );
            let (_, text) = call_with(at_rest("other"), request()).await;
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer["response"]["allowed"], json!(false));
            for part in ["namespace default", "in namespace ops", "watchNamespaces"] {
                assert!(text.contains(part), "{text}");
            }
        }
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
}
