//! The HTTP server of the webhooks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use ipu_guest_host::context::Operation;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::Namespaces;
use ipu_runtime::panics;
use ipu_runtime::port::metrics::Refused;
use ipu_runtime::port::serve::address;
use ipu_runtime::scope::Conflicts;
use ipu_runtime::served_group::ServedGroup;
use ipu_runtime::telemetry::trace;
use serde_json::Value;
use tracing::{Instrument, Span, info, warn};

use super::answer::{Answer, Decision};
use super::callers::Callers;
use super::chain_run::ChainRun;
use super::intake::{Intake, Refusal, refuse};
use super::metrics::Admission;
use super::pod_trial::PodTrial;
use super::request::{AdmissionRequest, Reviewed};
use super::{MUTATE_PATH, MUTATE_POD_PATH, VALIDATE_PATH, pod_trial, pods};

/// The shared state of the webhooks.
#[derive(Clone)]
struct WebhookState {
    active: ActivePolicies,
    namespaces: Namespaces,
    context: WebhookContext,
    intake: Arc<Intake>,
}

/// The operation of a review, the address of its caller, and its patience.
#[derive(Clone, Copy)]
struct ReviewOrigin {
    operation: Operation,
    address: IpAddr,
    /// Time in which the Pods of the object may be tried.
    patience: Duration,
}

impl WebhookState {
    /// Returns the answer of an inactive release: it admits the object if another release serves the namespace, and
    /// fails otherwise. `None` if the release is active.
    fn standby_answer(&self, request: &AdmissionRequest) -> Option<Answer> {
        let (namespace, reviewed) = (&request.namespace, request.reviewed);
        let conflicts = self.context.conflicts.current();
        let first = conflicts.first()?;
        if conflicts.iter().any(|one| one.theirs.contains(namespace)) {
            return Some(Answer::allowed());
        }
        Some(Answer::failed(format!(
            "this release does not serve {}s of namespace {namespace} because it is inactive: {}",
            reviewed.kind(),
            first.message()
        )))
    }

    async fn defaulted(&self, origin: ReviewOrigin, request: &AdmissionRequest) -> Answer {
        match self.standby_answer(request) {
            Some(answer) => answer,
            None => self.run(origin, request).run_defaulting().await,
        }
    }

    async fn validated(&self, origin: ReviewOrigin, request: &AdmissionRequest) -> Answer {
        if let Some(answer) = self.standby_answer(request) {
            return answer;
        }
        let began = Instant::now();
        let mut answer = self.run(origin, request).run_validation().await;
        if answer.decision == Decision::Allowed {
            let left = origin.patience.saturating_sub(began.elapsed());
            let warnings = self.context.pod_trial.warnings(request, left).await;
            answer.warnings.extend(warnings);
        }
        answer
    }

    async fn reviewed_pod(&self, origin: ReviewOrigin, request: &mut AdmissionRequest) -> Answer {
        if let Some(answer) = self.standby_answer(request) {
            return answer;
        }
        let hooks = pods::Hooks {
            active: &self.active,
            context: self.namespaces.context(&request.namespace, ""),
            caller: Some(origin.address),
            is_trusted: self.context.callers.is_api_server(origin.address, request),
        };
        pods::reviewed(request, &hooks).await
    }

    fn run<'a>(&'a self, origin: ReviewOrigin, request: &'a AdmissionRequest) -> ChainRun<'a> {
        let context = self.namespaces.context(&request.namespace, "");
        let admission = request.admission(origin.operation, context);
        let is_trusted = self.context.callers.is_api_server(origin.address, request);
        ChainRun::new(&self.active, request, admission)
            .for_caller(Some(origin.address))
            .trusted(is_trusted)
            .with_kueue(self.context.kueue.is_served())
    }
}

/// The state that the webhooks share with their process. The default trusts every caller.
#[derive(Clone, Debug, Default)]
pub struct WebhookContext {
    /// The callers that are certainly the API server.
    pub callers: Callers,
    /// Metrics of the webhooks.
    pub admission: Admission,
    /// Metrics of refused connections and requests.
    pub refused: Refused,
    /// The older releases that make this one inactive.
    pub conflicts: Conflicts,
    /// Whether Kueue is installed.
    pub kueue: ServedGroup,
    /// Tries the Pods of admitted jobs.
    pub pod_trial: PodTrial,
}

/// Returns the routes of the webhooks.
pub fn router(active: ActivePolicies, namespaces: Namespaces, context: WebhookContext) -> Router {
    Router::new()
        .route(MUTATE_PATH, post(mutating).fallback(wrong_method))
        .route(VALIDATE_PATH, post(validating).fallback(wrong_method))
        .route(MUTATE_POD_PATH, post(mutating_pod).fallback(wrong_method))
        .fallback(wrong_path)
        .layer(middleware::from_fn(panics::answered))
        .with_state(WebhookState {
            active,
            namespaces,
            intake: Arc::new(Intake::new(context.refused.clone())),
            context,
        })
}

async fn mutating(State(state): State<WebhookState>, call: Request) -> Response {
    let answer =
        async |origin, request: &mut AdmissionRequest| state.defaulted(origin, request).await;
    answered(&state, ("defaulting", Reviewed::IPUJob), call, answer).await
}

async fn validating(State(state): State<WebhookState>, call: Request) -> Response {
    let answer =
        async |origin, request: &mut AdmissionRequest| state.validated(origin, request).await;
    answered(&state, ("validation", Reviewed::IPUJob), call, answer).await
}

async fn mutating_pod(State(state): State<WebhookState>, call: Request) -> Response {
    let answer =
        async |origin, request: &mut AdmissionRequest| state.reviewed_pod(origin, request).await;
    answered(&state, ("pod", Reviewed::Pod), call, answer).await
}

/// Handles one call of a webhook.
async fn answered(
    state: &WebhookState,
    (webhook, reviewed): (&'static str, Reviewed),
    call: Request,
    answer: impl AsyncFnOnce(ReviewOrigin, &mut AdmissionRequest) -> Answer,
) -> Response {
    let (began, metrics) = (Instant::now(), &state.context.admission);
    let (parts, body) = call.into_parts();
    let mut admitted = match state.intake.read(&parts, body, reviewed).await {
        Ok(admitted) => admitted,
        Err(refusal) => {
            metrics.record(webhook, refusal.verdict(), None, began.elapsed());
            return refusal.into_response();
        }
    };
    let request = &mut admitted.request;
    let answer = match request.operation {
        Some(operation) if request.needs_policies() => {
            let origin = ReviewOrigin {
                operation,
                address: address(&parts.extensions),
                patience: pod_trial::patience(parts.uri.query()),
            };
            let span = span(webhook, request);
            answer(origin, request).instrument(span).await
        }
        _ => Answer::allowed(),
    };
    let verdict = (&answer.decision).into();
    metrics.record(webhook, verdict, Some(&request.uid), began.elapsed());
    reply(webhook, request, &answer)
}

/// Creates the span of a request. Its level is error, so that every log line of the request has it.
fn span(webhook: &str, request: &AdmissionRequest) -> Span {
    let job = format!("{}/{}", request.namespace, request.name);
    // The API server sets the UID of a new object between the two webhooks, so defaulting is not in the trace.
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
        Decision::Failed(reason) => warn!(reason, "gave no usable answer"),
    }
    axum::Json::<Value>(answer.render(request)).into_response()
}

async fn wrong_method(State(state): State<WebhookState>) -> Refusal {
    let text = "an AdmissionReview is sent by POST".to_owned();
    let refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, text);
    state.intake.log_malformed(refusal)
}

async fn wrong_path(State(state): State<WebhookState>) -> Refusal {
    let text = format!("the webhooks are at {MUTATE_PATH}, {VALIDATE_PATH} and {MUTATE_POD_PATH}");
    state
        .intake
        .log_malformed(refuse(StatusCode::NOT_FOUND, text))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::{WebhookContext, router};
    use crate::intake::BODY_LIMIT;
    use crate::request::tests::{review, updating};
    use crate::{MUTATE_PATH, VALIDATE_PATH};
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
