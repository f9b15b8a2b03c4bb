//! The limits of a port, met by real connections.

mod shared_address;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::Service;

use super::*;
use crate::body;
use crate::client_timeout::ConnectionEvents;
use crate::connection_limiter::TooMany;
use crate::limits::{PROBES, REST, SECURE_REST};
use crate::preemptive_semaphore::Share;

/// Far beyond what any step takes, so that only a real hang reaches it.
const BOUND: Duration = Duration::from_secs(30);

/// Most bytes of a body that is read.
const LONGEST: usize = 64 << 10;

/// Reads a body, and refuses one that is too long before its end.
async fn read(headers: HeaderMap, sent: Body) -> StatusCode {
    let announced = headers
        .get("content-length")
        .and_then(|length| length.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<usize>().ok());
    let is_long = announced.is_some_and(|length| length > LONGEST);
    if is_long || body::read(sent, LONGEST).await.is_err() {
        return StatusCode::PAYLOAD_TOO_LARGE;
    }
    StatusCode::OK
}

/// A port that serves, and its end.
struct Served {
    port: u16,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Served {
    fn begin(limits: Limits, routes: Router) -> Self {
        let port = Port::listen(0, limits, &Refused::default()).unwrap();
        let number = port.number().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(port.serve(routes, stop.clone()));
        Self {
            port: number,
            stop,
            serving,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// A connection from the address 127.0.0.`last`.
    async fn connect_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        let server = ([127, 0, 0, 1], self.port).into();
        socket.connect(server).await.unwrap()
    }

    /// All that is answered to a request, up to the end of the connection.
    async fn answer(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        String::from_utf8(rest(&mut stream).await).unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        self.serving.await.unwrap().unwrap();
    }
}

/// Returns the bytes before the end of the connection. A connection that is closed with unread
/// bytes ends with an error.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut text = Vec::new();
    let end = stream.read_to_end(&mut text);
    let ended = tokio::time::timeout(BOUND, end).await;
    let _ = ended.expect("the connection ends");
    text
}

fn few(first: Duration) -> Limits {
    Limits {
        connections: Share {
            total: 4,
            each: 2,
            queue: 0,
        },
        first,
        ..REST
    }
}

#[test]
fn a_connection_has_a_permit_as_long_as_it_lasts_and_each_address_its_share() {
    let limiter = ConnectionLimiter::new(Router::new(), few(REST.first), Refused::default());
    let from = |last: u8| SocketAddr::from(([10, 0, 0, last], 1_024));
    let open = |last| limiter.accept(from(last)).map_err(|TooMany(limit)| limit);
    let (first, second) = (open(1).unwrap(), open(1).unwrap());
    // An address that has its share loses the one that has waited longest.
    let third = open(1).unwrap();
    assert!(first.preempted().is_cancelled());
    // While their requests are in progress, both stay.
    let (mut asked, mut asked_too) = (second.clone(), third.clone());
    let get = || Request::get("/").body(Body::empty()).unwrap();
    let answers = (asked.call(get()), asked_too.call(get()));
    assert_eq!(open(1).map(drop), Err("address"));
    drop(answers);
    let _others = [open(2).unwrap(), open(3).unwrap()];
    // The next address gets a permit of the one that has two.
    let fourth = open(4).unwrap();
    assert!(second.preempted().is_cancelled());
    assert!(!third.preempted().is_cancelled() && !fourth.preempted().is_cancelled());
    assert_eq!(open(5).map(drop), Err("total"));
}

#[test]
fn an_address_that_connects_too_often_is_refused_and_others_are_not() {
    let limiter = ConnectionLimiter::new(Router::new(), REST, Refused::default());
    let from = |last: u8| SocketAddr::from(([10, 0, 0, last], 1_024));
    let limits = (0..10_000).filter_map(|_| limiter.accept(from(1)).map(drop).err());
    assert!(limits.into_iter().any(|TooMany(limit)| limit == "rate"));
    assert!(limiter.accept(from(2)).is_ok());
}

#[tokio::test]
async fn idle_connections_end_and_nobody_else_waits_for_them() {
    let routes = Router::new().route("/", get(async || "here"));
    let served = Served::begin(few(Duration::from_millis(200)), routes);
    // Neither client sends anything; then the second one begins to.
    let (mut idle, mut slow) = (served.connect().await, served.connect().await);
    slow.write_all(b"GET / HT").await.unwrap();
    assert_eq!(rest(&mut idle).await, b"");
    rest(&mut slow).await;
    let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(served.answer(request).await.ends_with("here"));
    served.end().await;
}

#[tokio::test]
async fn a_request_knows_the_address_that_it_came_from() {
    let peer = async |request: Request<Body>| address(request.extensions()).to_string();
    let served = Served::begin(REST, Router::new().route("/", get(peer)));
    let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = served.answer(request).await;
    assert!(answer.ends_with("127.0.0.1"), "{answer}");
    served.end().await;
}

#[tokio::test]
async fn what_is_under_way_at_the_end_is_answered() {
    let (begun, goes_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let inside = (begun.clone(), goes_on.clone());
    let slow = move || {
        let (begun, goes_on) = inside.clone();
        async move {
            begun.add_permits(1);
            let permit = goes_on.acquire().await;
            permit.map(drop).expect("it is never closed");
            "done"
        }
    };
    let served = Arc::new(Served::begin(REST, Router::new().route("/", post(slow))));
    let request = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let asking = served.clone();
    let asked = tokio::spawn(async move { asking.answer(request).await });
    begun.acquire().await.unwrap().forget();

    served.stop.cancel();
    let refused = async {
        while TcpStream::connect(("127.0.0.1", served.port)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let late = tokio::time::timeout(BOUND, refused).await;
    late.expect("nobody new is let in");
    goes_on.add_permits(1);
    let answer = asked.await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done"),
        "{answer}"
    );
    let served = Arc::into_inner(served).expect("nobody else has it");
    served.end().await;
}

#[tokio::test]
async fn what_is_too_long_is_refused_unread_and_the_connection_ends() {
    let served = Served::begin(SECURE_REST, Router::new().route("/", post(read)));
    let start = "POST / HTTP/1.1\r\nhost: x\r\n";
    // Neither of the bodies ends. The test sends only data that the server must read, because
    // unread data would end the connection before the answer arrives.
    let announced = format!("{start}content-length: 10485760\r\n\r\n");
    let piece = "x".repeat(LONGEST + 1);
    let chunked = format!(
        "{start}transfer-encoding: chunked\r\n\r\n{:x}\r\n{piece}",
        piece.len()
    );
    for request in [announced, chunked] {
        let answer = served.answer(&request).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    let long = format!("{start}authorization: Bearer ");
    let long = format!("{long}{}", "x".repeat(SECURE_REST.head - long.len()));
    let answer = served.answer(&long).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    served.end().await;
}

/// All connections that a port has, of eight addresses from this one on. Each sends this and no
/// more.
async fn taken_by_eight(
    served: &Served,
    limits: Limits,
    (first, sent): (u8, &str),
) -> Vec<TcpStream> {
    assert_eq!(8 * limits.connections.each, limits.connections.total);
    let mut taken = Vec::new();
    for last in first..first + 8 {
        for _ in 0..limits.connections.each {
            let mut stream = served.connect_from(last).await;
            stream.write_all(sent.as_bytes()).await.unwrap();
            taken.push(stream);
        }
    }
    taken
}

#[tokio::test]
async fn a_handful_of_addresses_cannot_take_all_connections() {
    // No wait is so short that it would help.
    let limits = Limits {
        first: 2 * BOUND,
        idle: 2 * BOUND,
        ..PROBES
    };
    let routes = Router::new().route("/", get(async || "here").post(read));
    let served = Served::begin(limits, routes);
    let idle = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let slow = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n";
    for round in [(10, ""), (20, "GET / HT"), (30, idle), (40, slow)] {
        let taken = taken_by_eight(&served, limits, round).await;
        let answered = served.answer("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answered = tokio::time::timeout(BOUND, answered).await.unwrap();
        assert!(answered.ends_with("here"), "{round:?}: {answered:?}");
        drop(taken);
    }
    served.end().await;
}

#[tokio::test]
async fn a_request_that_is_being_answered_keeps_its_connection() {
    let (begun, goes_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let inside = (begun.clone(), goes_on.clone());
    let slow = move || {
        let (begun, goes_on) = inside.clone();
        async move {
            begun.add_permits(1);
            let permit = goes_on.acquire().await;
            permit.map(drop).expect("it is never closed");
            "done"
        }
    };
    let limits = few(2 * BOUND);
    let served = Served::begin(limits, Router::new().route("/", get(slow)));
    let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut asked = served.connect_from(2).await;
    asked.write_all(request.as_bytes()).await.unwrap();
    begun.acquire().await.unwrap().forget();
    let mut idle = served.connect_from(2).await;
    let _others = [served.connect_from(3).await, served.connect_from(3).await];
    // The next address needs a permit of those that have two.
    let _more = [served.connect_from(4).await, served.connect_from(5).await];
    assert_eq!(rest(&mut idle).await, b"");
    goes_on.add_permits(1);
    let answer = String::from_utf8(rest(&mut asked).await).unwrap();
    assert!(answer.ends_with("done"), "{answer:?}");
    served.end().await;
}
