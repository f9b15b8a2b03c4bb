//! Slow clients, a slow API server and a slow V-IPU controller do not delay the requests of other
//! clients.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures::future::join_all;
use futures::stream::{self, FuturesUnordered};
use futures::{FutureExt, StreamExt};

use super::fixture::Ports;

/// Clients that begin to send a body and never finish.
const SLOW: usize = 80;

/// A body without any data; `waited` counts the clients whose first part is polled.
fn endless(waited: &Arc<AtomicUsize>) -> Body {
    let waited = Arc::clone(waited);
    let first = async move {
        waited.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<Bytes, std::io::Error>>().await
    };
    Body::from_stream(stream::once(first).boxed())
}

#[tokio::test]
async fn bodies_that_never_end_take_no_permit_from_others() {
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

/// A read of this controller ends after its deadline of seconds, and a query must wait for no other
/// one.
#[tokio::test(start_paused = true)]
async fn queries_do_not_wait_for_a_controller_that_does_not_answer() {
    let ports = Ports::open().await;
    // The kernel accepts its connections, and nobody reads them.
    let controller = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = controller.local_addr().unwrap();
    ports
        .list_controllers(&format!("{address}:ipunode=a"))
        .await;
    let began = tokio::time::Instant::now();
    let queries = (0..20).map(|_| ports.plain("POST", "/query", r#"{"size": 2}"#));
    let answers = join_all(queries).await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    for answer in answers {
        assert_eq!(answer.status, 200, "{answer:?}");
        let passed_over = &answer.body["passedOver"][0];
        assert_eq!(passed_over["controller"], address.to_string());
    }
}

#[tokio::test]
async fn made_up_tokens_of_one_address_keep_nobody_else_from_being_known() {
    let ports = Ports::open().await;
    ports.world().is_silent = true;
    let tokens: Vec<_> = (0..60).map(|number| format!("made-up-{number}")).collect();
    let asking = tokens
        .iter()
        .map(|token| ports.secure_from(1, token, "/partitions/p"));
    let mut asking: FuturesUnordered<_> = asking.collect();
    for refused in 0..60 - 4 {
        let answer = asking.next().await.unwrap();
        assert_eq!(answer.status, 503, "{refused}");
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(detail.contains("of this address"), "{detail}");
    }
    let reviews = || {
        let world = ports.world();
        let asked = world.asked.iter();
        asked.filter(|one| one.ends_with("/tokenreviews")).count()
    };
    assert_eq!(reviews(), 4, "no more are under way");
    // Their requests are still pending while another one is reviewed and answered.
    ports.world().is_silent = false;
    let answer = ports.secure_from(2, "admin", "/partitions/p").await;
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!(reviews(), 5);
}

#[tokio::test]
async fn a_token_that_was_refused_is_not_asked_about_again() {
    let ports = Ports::open().await;
    for _ in 0..3 {
        let answer = ports.secure("nobody", "GET", "/partitions", "").await;
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    let world = ports.world();
    let asked = world.asked.iter();
    let reviews = asked.filter(|one| one.ends_with("/tokenreviews"));
    assert_eq!(reviews.count(), 1);
}

#[tokio::test]
async fn one_address_that_asks_too_fast_or_too_much_refuses_nobody_else() {
    let ports = Ports::open().await;
    // More than a burst, all at once: however slow the machine is, they are counted before any is
    // answered.
    let asked = (0..2_000).map(|_| ports.secure_from(1, "", "/partitions"));
    let answers = join_all(asked).await;
    let is_refused = answers.iter().any(|answer| answer.status == 429);
    assert!(is_refused, "it is asked faster than it may");
    let answer = ports.secure_from(2, "admin", "/partitions/p").await;
    assert_eq!(answer.status, 404, "{answer:?}");
}
