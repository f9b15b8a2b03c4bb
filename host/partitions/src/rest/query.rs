//! Answers `/query`. Any client may send queries, so one query at a time reads the queue and calls the policy.

use std::net::IpAddr;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::Extensions;
use ipu_guest_host::context::PlacementContext;
use ipu_runtime::fair_semaphore::{FairPermit, FairSemaphore};
use ipu_runtime::port::serve::address;
use ipu_runtime::{clock, panics};
use jiff::{SignedDuration, Timestamp};

use super::problem::{Kind, Problem};
use super::query_request::{self, QueryRequest};
use super::reads::Sources;
use super::what_if;
use crate::placement_request::{self, Candidates};
use crate::queue::{self, Capacity, QueueEntry};
use crate::refusals;

/// Queries that are answered at the same time. The guest host permits as many dry runs.
const CONCURRENCY: usize = 1;

/// Longest time that a query waits for those before it.
const WAIT: Duration = Duration::from_secs(5);

/// The queries of a process. Clones share the permit.
#[derive(Clone, Debug)]
pub struct Queries(FairSemaphore);

impl Default for Queries {
    fn default() -> Self {
        Self(FairSemaphore::new(CONCURRENCY))
    }
}

impl Queries {
    /// Waits for the permit of a query from this address, which ends on drop.
    async fn permit(&self, address: IpAddr, wait: Duration) -> Result<FairPermit, Problem> {
        let permit = tokio::time::timeout(wait, self.0.acquire(Some(address))).await;
        permit.map_err(|_| {
            let detail = format!(
                "other queries are being answered for {} s already; try again",
                wait.as_secs()
            );
            Problem::new(Kind::Unavailable, detail).with_header("retry-after", "1")
        })
    }
}

pub(super) async fn answer(
    State(sources): State<Sources>,
    extensions: Extensions,
    body: Bytes,
) -> Result<Json<what_if::Answer>, Problem> {
    let query = query_request::read(&body)
        .map_err(|fault| Problem::of_request(Kind::Malformed, vec![fault]))?;
    // The controllers may be slow, and delay no other query.
    let mut found = sources.pool.candidates().await;
    let refused = sources.pool.limit_to_unrefused(&mut found.open);
    let _permit = sources.queries.permit(address(&extensions), WAIT).await?;
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
        answer,
        &query,
        &found,
        (capacity, never_fits),
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
    let me = queue::new_request(query.size, query.gang_size, selector, now);
    let open = found.open.clone();
    let capacity = queue::capacity_for(&me, entries, &[], 0, open, limit, now);
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
        let reasons = vec![placement_request::for_all(why)];
        answer.placement = answer.placement.waiting(reasons);
    } else if answer.placement.decision == what_if::Outcome::Reject && fits_cordoned {
        answer.placement = answer.placement.waiting(Vec::new());
    }
    let passed_over = queue::explained(answer.placement.passed_over, &capacity);
    answer.placement.passed_over = found.explained(passed_over);
    answer.placement.passed_over.extend(found.cordon_reasons());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_query_at_a_time_has_the_permit_and_others_are_told_to_come_again() {
        let (queries, address) = (Queries::default(), IpAddr::from([10, 0, 0, 1]));
        let permit = queries.permit(address, WAIT).await.unwrap();
        let other = queries.clone();
        let late = other.permit(address, Duration::ZERO).await.unwrap_err();
        assert_eq!(late.kind, Kind::Unavailable);
        assert_eq!(late.headers, [("retry-after", "1".to_owned())]);
        drop(permit);
        assert!(other.permit(address, WAIT).await.is_ok());
    }
}
