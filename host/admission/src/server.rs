//! The HTTP server of the webhooks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, middleware};
use ipu_api::guest::admission::Operation;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::Namespaces;
use ipu_ports::metrics::Refused;
use ipu_ports::serve::address;
use ipu_runtime::fair_semaphore::Client;
use ipu_runtime::panics;
use ipu_runtime::scope::Conflicts;
use ipu_runtime::served_group::ServedGroup;
use ipu_runtime::telemetry::trace::{self, TracedObject};
use ipu_text::explain;
use serde_json::Value;
use tracing::{Instrument, Span, info, warn};

use super::answer::{Answer, Decision};
use super::callers::Callers;
use super::chain_run::ChainRun;
use super::intake::{Intake, Refusal, refuse};
use super::metrics::Admission;
use super::pod_trial::{self, PodTrial};
use super::request::{AdmissionRequest, DEFAULTED, RULED, Reviewed};
use super::scale::{self, ScaleError, StoredJobs};
use super::{
    MUTATE_PATH, MUTATE_POD_PATH, VALIDATE_PATH, VALIDATE_POD_PATH, VALIDATE_SCALE_PATH, pods,
};

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
    /// Returns the answer of an inactive release: it admits the object if another release serves
    /// the namespace, and fails otherwise. `None` if the release is active.
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

    /// Returns the answer of a webhook.
    async fn answer(
        &self,
        webhook: Webhook,
        origin: ReviewOrigin,
        request: &mut AdmissionRequest,
    ) -> Answer {
        if let Some(answer) = self.standby_answer(request) {
            return answer;
        }
        match webhook {
            Webhook::JobDefaulting => self.run(origin, request).run_defaulting().await,
            Webhook::JobValidation => self.validated(origin, request).await,
            Webhook::ScaleValidation => self.scaled(origin, request).await,
            Webhook::PodDefaulting => pods::defaulted(request, &self.hooks(origin, request)).await,
            Webhook::PodValidation => pods::validated(request, &self.hooks(origin, request)).await,
        }
    }

    async fn validated(&self, origin: ReviewOrigin, request: &AdmissionRequest) -> Answer {
        let began = Instant::now();
        let mut answer = self.run(origin, request).run_validation().await;
        if answer.decision == Decision::Allowed {
            let left = origin.patience.saturating_sub(began.elapsed());
            let warnings = self.context.pod_trial.warnings(request, left).await;
            answer.warnings.extend(warnings);
        }
        answer
    }

    /// The request becomes the update of the IPUJob whose instances it changes.
    async fn scaled(&self, origin: ReviewOrigin, request: &mut AdmissionRequest) -> Answer {
        let job = match self.context.jobs.measured(request).await {
            Ok(Some(job)) => job,
            // The API server says so itself.
            Ok(None) => return Answer::allowed(),
            Err(error) => return Answer::failed(explain(&error)),
        };
        let _memory = match self.intake.reserve(origin.address, &job).await {
            Ok(permit) => permit,
            Err(refusal) => return Answer::failed(refusal.message()),
        };
        match job.value() {
            Ok(job) => *request = scale::as_update(request, job),
            Err(error) => return Answer::failed(explain(&ScaleError::Unreadable(error))),
        }
        self.run(origin, request).run_validation().await
    }

    fn hooks(&self, origin: ReviewOrigin, request: &AdmissionRequest) -> pods::Hooks<'_> {
        let is_trusted = self.context.callers.is_api_server(origin.address, request);
        pods::Hooks {
            active: &self.active,
            operation: origin.operation,
            context: self.namespaces.context(&request.namespace, ""),
            caller: Some(client(origin, request, is_trusted)),
            is_trusted,
        }
    }

    fn run<'a>(&'a self, origin: ReviewOrigin, request: &'a AdmissionRequest) -> ChainRun<'a> {
        let context = self.namespaces.context(&request.namespace, "");
        let admission = request.admission(origin.operation, context);
        let is_trusted = self.context.callers.is_api_server(origin.address, request);
        ChainRun::new(&self.active, request, admission)
            .for_caller(Some(client(origin, request, is_trusted)))
            .trusted(is_trusted)
            .with_kueue(self.context.kueue.is_served())
    }
}

/// Returns the client that shares the permits of guests fairly. Any other client than an API server
/// could send any name.
fn client(origin: ReviewOrigin, request: &AdmissionRequest, is_api_server: bool) -> Client {
    let client = Client::from(origin.address);
    if is_api_server {
        client.for_user(&request.user.name)
    } else {
        client
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
    /// The IPUJobs whose number of instances is changed.
    pub jobs: StoredJobs,
}

/// The webhooks that the API server calls.
#[derive(Clone, Copy)]
enum Webhook {
    JobDefaulting,
    JobValidation,
    ScaleValidation,
    PodDefaulting,
    PodValidation,
}

impl Webhook {
    const ALL: [Self; 5] = [
        Self::JobDefaulting,
        Self::JobValidation,
        Self::ScaleValidation,
        Self::PodDefaulting,
        Self::PodValidation,
    ];

    /// Path in the webhook configuration.
    const fn path(self) -> &'static str {
        match self {
            Self::JobDefaulting => MUTATE_PATH,
            Self::JobValidation => VALIDATE_PATH,
            Self::ScaleValidation => VALIDATE_SCALE_PATH,
            Self::PodDefaulting => MUTATE_POD_PATH,
            Self::PodValidation => VALIDATE_POD_PATH,
        }
    }

    /// Name in metrics and logs.
    const fn name(self) -> &'static str {
        match self {
            Self::JobDefaulting => "defaulting",
            Self::JobValidation => "validation",
            Self::ScaleValidation => "scale",
            Self::PodDefaulting => "pod",
            Self::PodValidation => "pod-validation",
        }
    }

    /// Kind of its objects.
    const fn reviewed(self) -> Reviewed {
        match self {
            Self::JobDefaulting | Self::JobValidation => Reviewed::IPUJob,
            Self::ScaleValidation => Reviewed::Scale,
            Self::PodDefaulting | Self::PodValidation => Reviewed::Pod,
        }
    }

    /// The parts of an object whose changes it reviews.
    const fn parts(self) -> &'static [&'static str] {
        match self {
            Self::JobDefaulting | Self::ScaleValidation | Self::PodDefaulting => DEFAULTED,
            Self::JobValidation | Self::PodValidation => RULED,
        }
    }
}

/// Returns the routes of the webhooks.
pub fn router(active: ActivePolicies, namespaces: Namespaces, context: WebhookContext) -> Router {
    let routes = Webhook::ALL
        .into_iter()
        .fold(Router::new(), |routes, webhook| {
            let answer = async move |State(state): State<WebhookState>, call: Request| {
                answered(&state, webhook, call).await
            };
            routes.route(webhook.path(), post(answer).fallback(wrong_method))
        });
    routes
        .fallback(wrong_path)
        .layer(middleware::from_fn(panics::answered))
        .with_state(WebhookState {
            active,
            namespaces,
            intake: Arc::new(Intake::new(context.refused.clone())),
            context,
        })
}

/// Handles one call of a webhook.
async fn answered(state: &WebhookState, webhook: Webhook, call: Request) -> Response {
    let (began, metrics) = (Instant::now(), &state.context.admission);
    let name = webhook.name();
    let (parts, body) = call.into_parts();
    let mut admitted = match state.intake.read(&parts, body, webhook.reviewed()).await {
        Ok(admitted) => admitted,
        Err(refusal) => {
            metrics.record(name, refusal.verdict(), None, began.elapsed());
            return refusal.into_response();
        }
    };
    let request = &mut admitted.request;
    let answer = match request.operation {
        Some(operation) if request.needs_policies(webhook.parts()) => {
            let origin = ReviewOrigin {
                operation,
                address: address(&parts.extensions),
                patience: pod_trial::patience(parts.uri.query()),
            };
            let span = span(name, request);
            state
                .answer(webhook, origin, request)
                .instrument(span)
                .await
        }
        _ => Answer::allowed(),
    };
    let verdict = (&answer.decision).into();
    metrics.record(name, verdict, Some(&request.uid), began.elapsed());
    reply(name, request, &answer)
}

/// Creates the span of a request. Its level is error, so that every log line of the request has it.
fn span(webhook: &str, request: &AdmissionRequest) -> Span {
    let job = format!("{}/{}", request.namespace, request.name);
    // The API server sets the UID of a new object between the two webhooks, so defaulting is not in
    // the trace.
    let object = request.object.pointer("/metadata/uid");
    let object = object.and_then(Value::as_str).unwrap_or_default();
    let (uid, trace_id) = (&request.uid, trace::id(object));
    let span = tracing::error_span!("admission", webhook, job, uid, trace_id);
    let reviewed = match request.reviewed {
        Reviewed::IPUJob | Reviewed::Scale => Reviewed::IPUJob,
        Reviewed::Pod => Reviewed::Pod,
    };
    let traced = TracedObject {
        kind: reviewed.kind(),
        namespace: &request.namespace,
        name: &request.name,
        uid: object,
    };
    trace::of_object(&span, &traced);
    span
}

fn reply(webhook: &str, request: &AdmissionRequest, answer: &Answer) -> Response {
    let _within = span(webhook, request).entered();
    match &answer.decision {
        Decision::Allowed | Decision::Patched(_) => tracing::debug!("admitted"),
        Decision::Refused(violations) => info!(?violations, "refused"),
        Decision::Failed(reason) | Decision::Busy(reason) => {
            warn!(reason, "gave no usable answer");
        }
        Decision::Waiting(reason) => info!(reason, "waits for a policy"),
    }
    axum::Json::<Value>(answer.render(request)).into_response()
}

async fn wrong_method(State(state): State<WebhookState>) -> Refusal {
    let text = "an AdmissionReview is sent by POST".to_owned();
    let refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, text);
    state.intake.log_malformed(refusal)
}

async fn wrong_path(State(state): State<WebhookState>) -> Refusal {
    let paths = Webhook::ALL.map(Webhook::path).join(", ");
    let text = format!("the webhooks are at {paths}");
    state
        .intake
        .log_malformed(refuse(StatusCode::NOT_FOUND, text))
}

#[cfg(test)]
mod tests;
