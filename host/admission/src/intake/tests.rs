//! Requests that the webhooks accept, and their clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::extract::ConnectInfo;
use axum::http::Request;
use futures::future::join_all;
use futures::{FutureExt, StreamExt, stream};
use ipu_ports::body::fixtures::byte_by_byte;
use serde_json::json;

use super::*;
use crate::request::tests::review;

/// It does not wait for permits, and for a body for as long as it takes to see that it is waited
/// for.
fn intake() -> Intake {
    let timeouts = Timeouts {
        body: Duration::from_millis(500),
        capacity: Duration::ZERO,
    };
    Intake::with(Refused::default(), timeouts)
}

/// The head of a call from the address 10.0.0.`last` with a body of this length.
fn parts(last: u8, length: usize) -> Parts {
    let request = Request::post("/")
        .header("content-type", "application/json")
        .header("content-length", length);
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    let peer = SocketAddr::from(([10, 0, 0, last], 1_024));
    parts.extensions.insert(ConnectInfo(peer));
    parts
}

async fn read(intake: &Intake, last: u8, text: &str) -> Result<Admitted, Refusal> {
    let body = Body::from(text.to_owned());
    intake
        .read(&parts(last, text.len()), body, Reviewed::IPUJob)
        .await
}

fn status(read: Result<Admitted, Refusal>) -> u16 {
    match read {
        Ok(_) => 200,
        Err(refusal) => refusal.0.as_u16(),
    }
}

/// Six concurrent hostile reviews: each 7 bytes take some 670 bytes of memory.
fn hostile() -> String {
    let elements = vec![r#"{"":0}"#; 1_100_000].join(",");
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","object":{{"a":[{elements}]}}}}}}"#
    )
}

#[tokio::test]
async fn bodies_that_would_take_too_much_memory_are_refused_and_others_are_read_meanwhile() {
    let intake = intake();
    let (hostile, good) = (hostile(), review(|_| {}).to_string());
    let attack = join_all((0..6).map(|_| read(&intake, 1, &hostile)));
    let (attack, good) = tokio::join!(attack, read(&intake, 2, &good));
    assert_eq!(
        good.map(|good| good.request.name).ok().as_deref(),
        Some("mnist")
    );
    for read in attack {
        let status = status(read);
        // Too large, or too many at once.
        assert!([413, 503].contains(&status), "{status}");
    }
    assert_eq!(status(read(&intake, 1, &hostile).await), 413);
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_takes_no_more_than_its_bytes() {
    let good = review(|_| {}).to_string();
    let (body, most) = byte_by_byte(good.as_bytes());
    let read = intake()
        .read(&parts(1, good.len()), body, Reviewed::IPUJob)
        .await;
    assert_eq!(status(read), 200);
    assert_eq!(most.load(Ordering::Relaxed), 1);
}

/// Begins to send bodies of the most that may be sent, `sent` bytes of each, from the address
/// 10.0.0.`last`.
async fn unfinished(
    intake: &Intake,
    (last, sent): (u8, usize),
    begun: Arc<AtomicUsize>,
) -> Result<Admitted, Refusal> {
    let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; sent]))]);
    let never = stream::once(async move {
        begun.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    });
    let body = Body::from_stream(first.chain(never));
    intake
        .read(&parts(last, BODY_LIMIT), body, Reviewed::IPUJob)
        .await
}

#[tokio::test]
async fn bodies_that_never_come_take_no_permit_from_others_and_end() {
    let intake = intake();
    let begun = Arc::<AtomicUsize>::default();
    let slow = (0..16).map(|_| unfinished(&intake, (1, 1), begun.clone()));
    let mut slow = Box::pin(join_all(slow));
    assert!(slow.as_mut().now_or_never().is_none());
    assert_eq!(
        begun.load(Ordering::Relaxed),
        16,
        "what is announced takes no permit"
    );
    let good = review(|_| {}).to_string();
    assert_eq!(status(read(&intake, 2, &good).await), 200);
    for read in slow.await {
        assert_eq!(status(read), 408);
    }
}

#[tokio::test]
async fn a_few_addresses_cannot_take_all_memory_for_bodies() {
    let intake = intake();
    let begun = Arc::<AtomicUsize>::default();
    let slow = (1..=6).map(|last| unfinished(&intake, (last, BODY_LIMIT - 1), begun.clone()));
    let mut slow = Box::pin(join_all(slow));
    assert!(slow.as_mut().now_or_never().is_none());
    assert_eq!(begun.load(Ordering::Relaxed), 6, "they have all of it");
    let good = review(|_| {}).to_string();
    assert_eq!(status(read(&intake, 7, &good).await), 200);
    let mut statuses: Vec<_> = slow.await.into_iter().map(status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [408, 408, 408, 408, 408, 503], "one gave way");
}

#[tokio::test]
async fn whoever_has_all_memory_for_large_requests_keeps_nobody_from_small_ones() {
    let intake = intake();
    let large = review(|review| {
        let elements = vec![json!({ "": 0 }); 24_000];
        review["request"]["object"]["a"] = elements.into();
    });
    let large = large.to_string();
    let mut admitted = Vec::new();
    let full = loop {
        match read(&intake, u8::try_from(admitted.len()).unwrap(), &large).await {
            Ok(one) => admitted.push(one),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(full.verdict(), "busy");
    assert!((2..=3).contains(&admitted.len()), "{}", admitted.len());
    let good = review(|_| {}).to_string();
    assert_eq!(status(read(&intake, 9, &good).await), 200);
}

#[tokio::test]
async fn requests_that_guests_are_asked_about_are_counted_for_each_address() {
    let intake = intake();
    let good = review(|_| {}).to_string();
    let mut admitted = Vec::new();
    for _ in 0..REQUESTS.each {
        admitted.push(read(&intake, 1, &good).await.map_err(|_| ()).unwrap());
    }
    let busy = read(&intake, 1, &good).await.err().unwrap();
    assert_eq!(busy.verdict(), "busy");
    let answer = busy.into_response();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!answer.headers().contains_key("connection"));
    assert_eq!(status(read(&intake, 2, &good).await), 200);
    admitted.pop();
    assert_eq!(status(read(&intake, 1, &good).await), 200);
}

#[tokio::test]
async fn a_long_body_on_which_the_operator_panics_is_answered() {
    let panicked: Result<(), _> = run_off_thread_if_long(SHORT + 1, || panic!("odd body")).await;
    let refusal = panicked.unwrap_err();
    assert_eq!(refusal.verdict(), "failed");
    assert_eq!(refusal.into_response().status(), 500);
}

#[tokio::test]
async fn a_stranger_cannot_make_the_answer_long() {
    let long = review(|review| review["request"]["dryRun"] = "x".repeat(100_000).into());
    let Refusal(status, text) = read(&intake(), 1, &long.to_string()).await.err().unwrap();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("invalid type: string"), "{text}");
    assert_eq!(text.chars().count(), MESSAGE_MAX + 1);
}

#[tokio::test]
async fn a_body_without_a_length_is_not_read() {
    let intake = intake();
    let mut parts = parts(1, 0);
    parts.headers.remove("content-length");
    let refusal = intake
        .read(&parts, Body::from("{}"), Reviewed::IPUJob)
        .await
        .err()
        .unwrap();
    let answer = refusal.into_response();
    assert_eq!(answer.status(), StatusCode::LENGTH_REQUIRED);
    assert_eq!(answer.headers()["connection"], "close");
}
