//! Clients and an API server that are slow keep nobody else from an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures::future::join_all;
use futures::stream::{self, FuturesUnordered};
use futures::{FutureExt, StreamExt};

use super::fixture::Ports;

/// Clients that begin to send a body and never come to its end.
const SLOW: usize = 80;

/// A body of which nothing ever comes; `waited` counts those whose first part is waited for.
fn endless(waited: &Arc<AtomicUsize>) -> Body {
    let waited = Arc::clone(waited);
    let first = async move {
        waited.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<Bytes, std::io::Error>>().await
    };
    Body::from_stream(stream::once(first).boxed())
}

#[tokio::test]
async fn bodies_that_never_end_take_no_place_from_others() {
    let ports = Ports::open().await;
    for path in ["/query", "/partitions"] {
        let waited = Arc::default();
        let slow = join_all((0..SLOW).map(|_| {
            let request = Request::post(path).header("authorization", "Bearer admin");
            let request = request.header("content-type", "application/json");
            ports.send(request.body(endless(&waited)).unwrap())
        }));
        let mut slow = Box::pin(slow);
        assert!(
            slow.as_mut().now_or_never().is_none(),
            "they are waited for"
        );
        assert_eq!(waited.load(Ordering::Relaxed), SLOW, "{path}");
        let answer = ports.secure("admin", "GET", "/stats", "").await;
        assert_eq!(answer.status, 200, "{path}");
    }
}

#[tokio::test]
async fn made_up_tokens_cannot_take_all_places() {
    let ports = Ports::open().await;
    let known = ports.secure("admin", "GET", "/partitions/p", "").await;
    assert_eq!(known.status, 404);
    ports.world().is_silent = true;
    let tokens: Vec<_> = (0..60).map(|number| format!("made-up-{number}")).collect();
    let asking = tokens
        .iter()
        .map(|token| ports.secure(token, "GET", "/partitions/p", ""));
    let mut asking: FuturesUnordered<_> = asking.collect();
    for _ in 16..60 {
        let answer = asking.next().await.unwrap();
        let detail = answer.body["detail"].as_str().unwrap();
        assert_eq!(answer.status, 503);
        assert!(
            detail.contains("16 tokens are being checked already"),
            "{detail}"
        );
    }
    let world = ports.world();
    let asked = world.asked.iter();
    let reviews = asked.filter(|one| one.ends_with("/tokenreviews"));
    assert_eq!(reviews.count(), 1 + 16, "no more are under way");
}
