//! The V-IPU proxy's REST for people: `/health`, `/readyz`, `/stats` and `/query`, plain HTTP, reads only.

pub mod answers;
pub mod question;
mod serve;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::error_handling::HandleErrorLayer;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{BoxError, Json, Router};
use kube::runtime::reflector::Store;
use serde_json::json;
use tower::ServiceBuilder;

use crate::partition::{self, Guarded, fleet::Fleet};
use question::Fault;
pub use serve::{ServeError, serve};

/// Largest body that is read, in bytes. A question has some twenty.
const BODY_MAX: usize = 4 << 10;

/// Requests that are answered at the same time; more are turned away at once.
const CONCURRENCY: usize = 64;

/// How long an answer may take. A controller that does not answer is given up before.
const DEADLINE: Duration = Duration::from_secs(40);

/// What the answers are made from.
#[derive(Clone)]
pub struct Sources {
    /// The IPUPartitions, as the watch last saw them.
    pub partitions: Store<Guarded>,
    /// The V-IPU controllers, asked for each answer.
    pub fleet: Arc<Fleet>,
}

/// Every route.
pub fn router(sources: Sources) -> Router {
    let limits = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(turned_away))
        .load_shed()
        .layer(tower::limit::GlobalConcurrencyLimitLayer::new(CONCURRENCY))
        .timeout(DEADLINE);
    Router::new()
        .route("/stats", get(stats))
        .route("/query", post(query))
        .layer(limits)
        .route("/health", get(health))
        .route("/readyz", get(ready))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .method_not_allowed_fallback(wrong_method)
        .fallback(wrong_path)
        .with_state(sources)
}

async fn health() -> Json<serde_json::Value> {
    Json(json!({"status": "ok"}))
}

/// Ready once the IPUPartitions are known: an answer before that would count nothing as used.
async fn ready(State(sources): State<Sources>) -> Response {
    let is_known = tokio::time::timeout(Duration::ZERO, sources.partitions.wait_until_ready());
    if let Ok(Ok(())) = is_known.await {
        Json(json!({"status": "ok"})).into_response()
    } else {
        let body = json!({"status": "the IPUPartitions are not read yet"});
        (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
    }
}

async fn stats(State(sources): State<Sources>) -> Response {
    let views = sources.fleet.views().await;
    let partitions = partition::readable(&sources.partitions);
    Json(answers::stats(&partitions, &views)).into_response()
}

async fn query(State(sources): State<Sources>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => {
            let rule = format!("at most {BODY_MAX} bytes, sent whole");
            let fault = Fault::new("body", &rejection.body_text(), &rule);
            return (rejection.status(), Json(fault)).into_response();
        }
    };
    match question::size(&body) {
        Ok(size) => Json(answers::room(size, &sources.fleet.views().await)).into_response(),
        Err(fault) => (StatusCode::BAD_REQUEST, Json(fault)).into_response(),
    }
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let rule = match uri.path() {
        "/query" => "POST with a body such as {\"size\": 2}",
        _ => "GET",
    };
    let fault = Fault::new("method", method.as_str(), rule);
    (StatusCode::METHOD_NOT_ALLOWED, Json(fault)).into_response()
}

async fn wrong_path(uri: Uri) -> Response {
    let rule = "one of /health, /readyz, /stats and /query";
    let fault = Fault::new("path", uri.path(), rule);
    (StatusCode::NOT_FOUND, Json(fault)).into_response()
}

async fn turned_away(error: BoxError) -> Response {
    let (status, message) = if error.is::<tower::timeout::error::Elapsed>() {
        (
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "the V-IPU controllers gave no answer within {} s",
                DEADLINE.as_secs()
            ),
        )
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{CONCURRENCY} requests are being answered already; try again"),
        )
    };
    (status, Json(json!({"message": message}))).into_response()
}
