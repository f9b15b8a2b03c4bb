//! The public reads of both ports: health, statistics, what-if queries, and the OpenAPI document.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRef, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ipu_guest_host::context::PlacementContext;
use ipu_policies::active_policies::ActivePolicies;
use ipu_policies::namespace_usage::Namespaces;
use ipu_runtime::clock;
use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::answers::{self, Health, Stats};
use super::openapi::{ErrorFormat, document};
use super::operation::{self, Answer, Operation, schema_of};
use super::problem::{Kind, Problem};
use super::query_request::{self, QueryRequest};
use super::{limits, what_if};
use crate::controller_pool::ControllerPool;
use crate::controller_summary::{self, Summary};
use crate::placement::{self, Candidates};
use crate::queue::{self, Capacity};
use crate::refusals;
use crate::watched::Watched;

/// The sources of the answers.
#[derive(Clone)]
pub struct Sources {
    /// The IPUPartitions, as the watch last saw them.
    pub partitions: Watched,
    /// The V-IPU controllers.
    pub pool: Arc<ControllerPool>,
    /// The placement policy.
    pub guests: ActivePolicies,
    /// The usage of every namespace.
    pub namespaces: Namespaces,
    /// Waiting time after which capacity is reserved for a request.
    pub backfill_limit: Duration,
}

impl Sources {
    /// Whether the IPUPartitions are listed: before that, an answer would count no IPU as used.
    pub fn is_ready(&self) -> bool {
        self.partitions.is_listed()
    }
}

/// Statistics by namespace; `total` is all of them.
type AllStats = std::collections::BTreeMap<String, Stats>;

/// The reads.
pub(super) fn operations<S>() -> Vec<Operation<S>>
where
    S: Clone + Send + Sync + 'static,
    Sources: FromRef<S>,
{
    vec![
        Operation::get::<Health>("/health", "health", "The process lives.", get(health))
            .unbounded(),
        Operation::get::<Health>("/readyz", "ready", "The process can answer.", get(ready))
            .unbounded()
            .with(|what| {
                what.otherwise = Some(Answer {
                    status: 503,
                    description: "It cannot yet.",
                    schema: schema_of::<Health>,
                });
            }),
        Operation::get::<AllStats>("/stats", "stats", "IPUs used and free.", get(stats)).with(
            |what| {
                what.details = "One key for each namespace with partitions, and `total`. `used` \
                    counts the operator's partitions; what others made by hand is not available \
                    either.";
            },
        ),
        Operation::get::<what_if::Answer>(
            "/query",
            "query",
            "How many partitions of a size could be made, and where.",
            post(query),
        )
        .with(|what| {
            what.method = "post";
            what.details = "Creates nothing. The active placement policy decides where the next \
                partition would be created, after all requests that wait. `numOfPartitions` is an upper bound and \
                `largestSize` an estimate: the controllers do not report which IPUs can form \
                a partition. The body may have any content type.";
            what.body = Some(operation::Body {
                schema: schema_of::<QueryRequest>,
                max: limits::QUERY_MAX,
            });
            what.problems
                .extend([Kind::Malformed, Kind::Slow, Kind::TooLarge]);
        }),
    ]
}

/// The kubelet's probes, on a port that serves nothing else. Users have `/health` and `/readyz` on the others.
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
        "What each V-IPU controller has.",
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

async fn stats(State(sources): State<Sources>) -> Json<AllStats> {
    let views = sources.pool.views().await;
    let partitions = &sources.partitions;
    Json(partitions.read(|cache| answers::stats(cache.briefs().map(|(one, _)| one), &views)))
}

async fn query(
    State(sources): State<Sources>,
    body: Bytes,
) -> Result<Json<what_if::Answer>, Problem> {
    let query = query_request::read(&body)
        .map_err(|fault| Problem::of_request(Kind::Malformed, vec![fault]))?;
    let context = PlacementContext {
        namespace: sources.namespaces.context(&query.namespace, ""),
        others: sources.namespaces.others(&query.namespace),
        waiting: sources.partitions.read(|cache| cache.waiting_sizes()),
        ..PlacementContext::default()
    };
    let mut found = sources.pool.candidates().await;
    let refused = sources.pool.limit_to_unrefused(&mut found.open);
    let (capacity, never_fits) = behind_queue(&sources, &query, &found);
    let mut answer = what_if::answer(&sources.guests, &query, context, &capacity.views).await;
    let passed_over = std::mem::take(&mut answer.placement.passed_over);
    answer.placement.passed_over = refusals::explained(passed_over, &refused, query.size);
    Ok(Json(explained(
        answer,
        &query,
        &found,
        (capacity, never_fits),
    )))
}

/// The capacity for a new request behind all that wait, and why it can never be served.
fn behind_queue(
    sources: &Sources,
    query: &QueryRequest,
    found: &Candidates,
) -> (Capacity, Option<String>) {
    let now = clock::now();
    let entries = sources.partitions.read(|cache| cache.queue(now));
    let selector = query.node_selector.clone();
    let me = queue::new_request(query.size, query.gang_size, selector, now);
    let limit = SignedDuration::try_from(sources.backfill_limit).unwrap_or(SignedDuration::MAX);
    let open = found.open.clone();
    let capacity = queue::capacity_for(&me, &entries, &[], 0, open, limit, now);
    let never_fits = queue::never_fits(&me, found.open.iter().chain(&found.cordoned));
    (capacity, never_fits)
}

/// The answer with the reasons that the policy does not know. As in a reconcile, a request that fits only on a cordoned
/// controller waits.
fn explained(
    mut answer: what_if::Answer,
    query: &QueryRequest,
    found: &Candidates,
    (capacity, never_fits): (Capacity, Option<String>),
) -> what_if::Answer {
    let mut cordoned = found.cordoned.iter();
    let fits_cordoned = cordoned.any(|view| view.total_ipus >= query.size);
    if let Some(why) = never_fits {
        answer.placement = answer.placement.rejected(&why);
    } else if let Some(why) = &capacity.too_small {
        let reasons = vec![placement::for_all(why)];
        answer.placement = answer.placement.waiting(reasons);
    } else if answer.placement.decision == what_if::Outcome::Reject && fits_cordoned {
        answer.placement = answer.placement.waiting(Vec::new());
    }
    let passed_over = queue::explained(answer.placement.passed_over, &capacity);
    answer.placement.passed_over = found.explained(passed_over);
    answer.placement.passed_over.extend(found.cordon_reasons());
    answer
}

async fn controller_summaries(State(sources): State<Sources>) -> Json<Vec<Summary>> {
    let states = sources.pool.states().await;
    let partitions = &sources.partitions;
    Json(partitions.read(|cache| {
        let ours = controller_summary::ours(cache.held());
        controller_summary::summaries(states, &ours)
    }))
}
