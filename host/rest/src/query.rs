//! Answers `/query`. Any client may send queries, so one query at a time reads controllers and
//! queue, and calls the guest.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::Extensions;
use ipu_api::guest::placement::PlacementContext;
use ipu_placement::backfill::{self, Capacity};
use ipu_placement::guest_call::{self, Candidates};
use ipu_placement::queue::{self, QueueEntry};
use ipu_placement::refusals;
use ipu_ports::serve::address;
use ipu_runtime::{clock, panics};
use jiff::{SignedDuration, Timestamp};

use super::problem::{Kind, Problem};
use super::query_permits::WAIT;
use super::query_request::{self, QueryRequest};
use super::sources::Sources;
use super::what_if;

pub(super) async fn answer(
    State(sources): State<Sources>,
    extensions: Extensions,
    body: Bytes,
) -> Result<Json<what_if::Answer>, Problem> {
    let query = query_request::read(&body)
        .map_err(|fault| Problem::of_request(Kind::Malformed, vec![fault]))?;
    // First: a query that waits holds no copy of the controllers' capacity.
    let _permit = sources.queries.permit(address(&extensions), WAIT).await?;
    let mut found = sources.pool.candidates_soon().await;
    let refused = sources.pool.limit_to_unrefused(&mut found.open);
    let entries = sources.partitions.queue(clock::now());
    let context = PlacementContext {
        namespace: sources.namespaces.context(&query.namespace, ""),
        others: sources.namespaces.others(&query.namespace),
        waiting: queue::sizes(entries.iter()),
        ..PlacementContext::default()
    };
    let limit = SignedDuration::try_from(sources.backfill_limit).unwrap_or(SignedDuration::MAX);
    let asked = query.clone();
    // With thousands of requests with different node selectors, this takes a part of a second.
    let work = move || {
        let behind = behind_queue(&asked, &entries, &found, limit, clock::now());
        (behind, found)
    };
    let worked = panics::caught_blocking(work).await;
    let ((capacity, never_fits), found) =
        worked.map_err(|panicked| Problem::new(Kind::Unavailable, panicked.to_string()))?;
    let mut answer = what_if::answer(&sources.guests, &query, context, &capacity.views).await;
    let passed_over = std::mem::take(&mut answer.placement.passed_over);
    answer.placement.passed_over = refusals::explained(passed_over, &refused, query.size);
    Ok(Json(explained(
        answer, &query, &found, &capacity, never_fits,
    )))
}

/// The capacity for a new request behind all that wait, and why it can never be served.
fn behind_queue(
    query: &QueryRequest,
    entries: &[QueueEntry],
    found: &Candidates,
    limit: SignedDuration,
    now: Timestamp,
) -> (Capacity, Option<String>) {
    let selector = query.node_selector.clone();
    let me = backfill::new_request(query.size, query.gang_size, selector, now);
    let open = found.open.clone();
    let capacity = backfill::capacity_for(&me, entries, &[], 0, open, limit, now);
    let never_fits = backfill::never_fits(&me, found.open.iter().chain(&found.cordoned));
    (capacity, never_fits)
}

/// The answer with the reasons that the guest does not know. As in a reconcile, a request waits
/// that fits only on a cordoned controller, or on one that may have more IPUs soon.
fn explained(
    mut answer: what_if::Answer,
    query: &QueryRequest,
    found: &Candidates,
    capacity: &Capacity,
    never_fits: Option<String>,
) -> what_if::Answer {
    let mut cordoned = found.cordoned.iter();
    let fits_cordoned = cordoned.any(|view| view.total_ipus >= query.size);
    let selector = query.node_selector.clone();
    let me = backfill::new_request(query.size, query.gang_size, selector, clock::now());
    let may_fit_later = found.may_fit_later(&me);
    let is_rejected = never_fits.is_some() || answer.placement.decision == what_if::Outcome::Reject;
    if is_rejected && !may_fit_later.is_empty() {
        answer.placement = answer.placement.waiting(may_fit_later);
    } else if let Some(why) = never_fits {
        answer.placement = answer.placement.rejected(&why);
    } else if let Some(why) = &capacity.too_small {
        let reasons = vec![guest_call::for_all(why)];
        answer.placement = answer.placement.waiting(reasons);
    } else if answer.placement.decision == what_if::Outcome::Reject && fits_cordoned {
        answer.placement = answer.placement.waiting(Vec::new());
    }
    let passed_over = backfill::explained(answer.placement.passed_over, capacity);
    answer.placement.passed_over = found.explained(passed_over);
    answer.placement.passed_over.extend(found.cordon_reasons());
    answer
}
