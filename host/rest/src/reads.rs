//! The public reads of both ports: health, statistics, what-if queries, and the OpenAPI document.

use axum::body::Bytes;
use axum::extract::{FromRef, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ipu_partitions::controllers::summary::{self, Summary};
use serde::Serialize;
use serde_json::{Map, Value};

use super::answers::{self, Health, Stats};
use super::openapi::{ErrorFormat, document};
use super::operation::{self, Answer, Operation, schema_of};
use super::problem::Kind;
use super::query_request::QueryRequest;
use super::sources::Sources;
use super::{limits, query, what_if};

/// Statistics by namespace; `total` is all of them.
type AllStats = std::collections::BTreeMap<String, Stats>;

/// The reads.
pub(super) fn operations<S>() -> Vec<Operation<S>>
where
    S: Clone + Send + Sync + 'static,
    Sources: FromRef<S>,
{
    vec![
        Operation::get::<Health>("/health", "health", "The process is alive.", get(health))
            .unbounded(),
        Operation::get::<Health>("/readyz", "ready", "The process can answer.", get(ready))
            .unbounded()
            .with(|what| {
                what.otherwise = Some(Answer {
                    status: 503,
                    description: "The process cannot answer yet.",
                    schema: schema_of::<Health>,
                });
            }),
        Operation::get::<AllStats>("/stats", "stats", "IPUs used and free.", get(stats)).with(
            |what| {
                what.details = "One key for each namespace with partitions, and `total`. `used` \
                    counts the operator's partitions. `available` also excludes partitions that \
                    users created by hand.";
            },
        ),
        Operation::get::<what_if::Answer>(
            "/query",
            "query",
            "How many partitions of a size could be made, and where.",
            post(query::answer),
        )
        .with(|what| {
            what.method = "post";
            what.details = "Creates nothing. The active placement policy decides where the next \
                partition would be created, after all requests that wait. `numOfPartitions` is an upper bound and \
                `largestSize` an estimate where V-IPU controllers do not report which IPUs are free. One query is answered at a time. The body may have any content type.";
            what.body = Some(operation::Body {
                schema: schema_of::<QueryRequest>,
                max: limits::QUERY_MAX,
            });
            what.problems
                .extend([Kind::Malformed, Kind::Slow, Kind::TooLarge]);
        }),
    ]
}

/// The kubelet's probes, on a port that serves nothing else. Users have `/health` and `/readyz` on
/// the others.
pub(super) fn probes() -> Router<Sources> {
    Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
}

/// The public read of the V-IPU controllers.
pub(super) fn summaries() -> Operation<Sources> {
    Operation::get::<Vec<Summary>>(
        "/controllers",
        "controllers",
        "The partitions and IPUs of each V-IPU controller.",
        get(controller_summaries),
    )
    .with(|what| {
        what.details = "The owners of the partitions are reported on the port with TLS, to users who \
            may list IPUPartitions.";
    })
}

/// Adds the operation that serves the OpenAPI document.
pub(super) fn with_document<S>(
    mut operations: Vec<Operation<S>>,
    error_format: ErrorFormat,
) -> Vec<Operation<S>>
where
    S: Clone + Send + Sync + 'static,
{
    let mut described: Vec<_> = operations
        .iter()
        .map(|one| one.description.clone())
        .collect();
    let own = Operation::<S>::get::<Map<String, Value>>(
        "/openapi.json",
        "openapi",
        "This document.",
        get(async || ()),
    );
    described.push(own.description.clone());
    let text = Bytes::from(document(&described, error_format).to_string());
    operations.push(Operation {
        route: get(move || {
            let text = text.clone();
            async move { ([(header::CONTENT_TYPE, "application/json")], text) }
        }),
        ..own
    });
    operations
}

async fn health() -> Json<Health> {
    Json(Health::ok())
}

async fn ready(State(sources): State<Sources>) -> Response {
    if sources.is_ready() {
        return Json(Health::ok()).into_response();
    }
    let missing = Health::missing("the IPUPartitions are not read yet");
    (StatusCode::SERVICE_UNAVAILABLE, Json(missing)).into_response()
}

async fn stats(State(sources): State<Sources>) -> Response {
    let (pool, partitions) = (&sources.pool, &sources.partitions);
    let answer = sources.recent.stats.get(async {
        let views = pool.views().await;
        let stats: AllStats =
            partitions.read(|cache| answers::stats(cache.briefs().map(|(one, _)| one), &views));
        encoded(&stats)
    });
    as_json(answer.await)
}

async fn controller_summaries(State(sources): State<Sources>) -> Response {
    let (pool, partitions) = (&sources.pool, &sources.partitions);
    let answer = sources.recent.controllers.get(async {
        let states = pool.states().await;
        let summaries: Vec<Summary> = partitions.read(|cache| {
            let ours = summary::ours(cache.held());
            summary::summaries(states, &ours)
        });
        encoded(&summaries)
    });
    as_json(answer.await)
}

fn encoded(answer: &impl Serialize) -> Bytes {
    // Serialization of own types with text keys does not fail.
    serde_json::to_vec(answer).unwrap_or_default().into()
}

fn as_json(answer: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], answer).into_response()
}
