//! Limits of the REST: size, rate and concurrency of requests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use ipu_ports::body::{self, BodyError};
use ipu_ports::limits::METRICS;
use ipu_ports::metrics::Refused;
use ipu_ports::preemptive_semaphore::{Full, PreemptiveSemaphore, Share};
use ipu_ports::rate_limiter::{Rate, RateLimiter, number};
use ipu_ports::serve::address;

use super::problem::{Kind, Problem};

/// Largest body of `/query`, in bytes. A usual one has twenty.
pub const QUERY_MAX: usize = 4 << 10;

/// Largest body of `POST /partitions`, in bytes. A usual one has three hundred. It is read before
/// authentication, on as many connections as the port allows.
pub const CREATE_MAX: usize = 16 << 10;

/// Longest time that a client may take to send its body.
const BODY: Duration = Duration::from_secs(5);

/// Concurrent requests. Others wait in a bounded queue: together they are fewer than the
/// connections of any port.
pub const CONCURRENCY: Share = Share {
    total: 64,
    each: 16,
    queue: 64,
};

const _: () = assert!(CONCURRENCY.total + CONCURRENCY.queue < METRICS.connections.total);

/// Longest wait of a request in the queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit of an answer. The timeout of a controller is shorter.
const DEADLINE: Duration = Duration::from_secs(40);

/// Rate of requests from one address to one port, before authentication.
const ADDRESS_RATE: Rate = Rate::new(number(100), number(200));

/// Rate of requests of one user.
const USER_RATE: Rate = Rate::new(number(50), number(100));

/// The largest body of a POST to each path that takes one, in bytes.
pub(super) type BodyMax = BTreeMap<&'static str, usize>;

/// The limits of one port.
struct Limits {
    port: &'static str,
    rate_limiter: RateLimiter<IpAddr>,
    semaphore: PreemptiveSemaphore,
    bodies: BodyMax,
    refused: Refused,
}

/// Limits rate, concurrency and time of the routes, for each address. Refused requests count under
/// the name of the port.
pub(super) fn bounded<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    bodies: BodyMax,
    (port, refused): (&'static str, Refused),
) -> Router<S> {
    let limits = Limits {
        port,
        rate_limiter: RateLimiter::new(ADDRESS_RATE),
        semaphore: PreemptiveSemaphore::new(CONCURRENCY),
        bodies,
        refused,
    };
    router.layer(middleware::from_fn_with_state(
        Arc::new(limits),
        answer_within_limits,
    ))
}

/// Answers a request within the limits. A request counts as concurrent only after its body was
/// read, so slow clients do not delay others.
async fn answer_within_limits(
    State(limits): State<Arc<Limits>>,
    request: Request,
    next: Next,
) -> Response {
    let address = address(request.extensions());
    let refused = |limit| limits.refused.request(limits.port, limit);
    if let Err(wait) = limits.rate_limiter.check(&address) {
        refused("rate");
        return too_many("this port", ADDRESS_RATE, wait).into_response();
    }
    let request = match buffer_body(&limits.bodies, request).await {
        Ok(request) => request,
        Err(problem) => return problem.into_response(),
    };
    let _permit = match limits.semaphore.acquire(address, 1, QUEUE_TIMEOUT).await {
        Ok(permit) => permit,
        Err(full) => {
            refused(full.limit());
            return busy(full, "requests", "answered").into_response();
        }
    };
    let answered = tokio::time::timeout(DEADLINE, next.run(request)).await;
    answered.unwrap_or_else(|_| {
        let detail = format!(
            "the V-IPU controllers or the API server gave no answer within {} s",
            DEADLINE.as_secs()
        );
        Problem::new(Kind::Late, detail).into_response()
    })
}

/// The rate limit of each user.
pub(super) struct UserRate(RateLimiter<String>);

impl Default for UserRate {
    fn default() -> Self {
        Self(RateLimiter::new(USER_RATE))
    }
}

impl UserRate {
    /// One request in a whole hour.
    #[cfg(test)]
    pub(super) fn of_an_hour() -> Self {
        Self(RateLimiter::of_an_hour())
    }

    /// Counts one request of this user.
    pub(super) fn check(&self, user: &str) -> Result<(), Problem> {
        let checked = self.0.check(&user.to_owned());
        checked.map_err(|wait| too_many(&format!("the user {user}"), USER_RATE, wait))
    }
}

/// Reads a body of at most `max` bytes. A longer one is refused by its Content-Length, or when it
/// exceeds the limit. Then the connection is closed, and the rest is never read.
pub(crate) async fn read(headers: &HeaderMap, body: Body, max: usize) -> Result<Vec<u8>, Problem> {
    let rule = format!("at most {max} bytes, sent whole");
    let too_large = |length: &str| {
        Problem::of_field(Kind::TooLarge, "body", length, &rule).with_header("connection", "close")
    };
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok())
        .and_then(|length| length.parse::<u64>().ok());
    if let Some(length) = announced.filter(|length| *length > max as u64) {
        return Err(too_large(&format!("{length} bytes long")));
    }
    let read = tokio::time::timeout(BODY, body::read(body, max)).await;
    let read = read.map_err(|_| {
        let rule = format!("sent within {} s", BODY.as_secs());
        Problem::of_field(Kind::Slow, "body", "not there in time", &rule)
            .with_header("connection", "close")
    })?;
    read.map_err(|error| match error {
        BodyError::TooLong(_) => too_large("longer"),
        BodyError::Broken(_) => Problem::of_field(Kind::Malformed, "body", "broken off", &rule),
    })
}

/// Reads the body of a path that expects one.
async fn buffer_body(bodies: &BodyMax, request: Request) -> Result<Request, Problem> {
    let max = bodies.get(request.uri().path()).copied();
    let Some(max) = max.filter(|_| request.method() == Method::POST) else {
        return Ok(request);
    };
    let (parts, body) = request.into_parts();
    let body = read(&parts.headers, body, max).await?;
    Ok(Request::from_parts(parts, body.into()))
}

fn too_many(who: &str, rate: Rate, wait: Duration) -> Problem {
    let (rate, seconds) = (rate.per_second, wait.as_secs() + 1);
    let detail = format!("{who} is limited to {rate} requests a second; try again in {seconds} s");
    Problem::new(Kind::TooMany, detail).with_header("retry-after", seconds.to_string())
}

/// The problem of a full share: too many of `what` are being `treated` already.
pub(super) fn busy(full: Full, what: &str, treated: &str) -> Problem {
    let detail = match full {
        Full::Address(each) => {
            format!("{each} {what} of this address are being {treated} already; try again")
        }
        Full::Total(total) => format!("{total} {what} are being {treated} already; try again"),
    };
    Problem::new(Kind::Unavailable, detail).with_header("retry-after", "1")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::Ordering;

    use axum::extract::ConnectInfo;
    use axum::http::StatusCode;
    use axum::routing::{get, post};
    use futures::FutureExt;
    use ipu_ports::body::fixtures::byte_by_byte;
    use ipu_ports::limits::SECURE_REST;
    use ipu_ports::serve::Port;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::Semaphore;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt;

    use super::*;

    /// Far beyond what any step takes, so that only a real hang reaches it.
    const BOUND: Duration = Duration::from_secs(30);

    #[test]
    fn a_user_over_the_limit_must_retry_later_and_others_go_on() {
        let rate = UserRate::default();
        let answers: Vec<_> = (0..1_000).map(|_| rate.check("a")).collect();
        let good = answers.iter().filter(|answer| answer.is_ok()).count();
        assert!((100..1_000).contains(&good), "{good}");
        let problem = answers.into_iter().find_map(Result::err).unwrap();
        assert_eq!(problem.kind, Kind::TooMany);
        assert_eq!(problem.headers, [("retry-after", "1".to_owned())]);
        assert!(
            problem
                .detail
                .contains("the user a is limited to 50 requests")
        );
        assert_eq!(rate.check("b"), Ok(()));
    }

    #[tokio::test]
    async fn a_body_that_comes_byte_by_byte_takes_no_more_than_its_bytes() {
        let (body, most) = byte_by_byte(&[b' '; QUERY_MAX]);
        let read = read(&HeaderMap::new(), body, QUERY_MAX).await;
        assert_eq!(read.map(|text| text.len()).ok(), Some(QUERY_MAX));
        assert_eq!(most.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_is_too_long_is_refused_unread_and_the_connection_ends() {
        let port = Port::listen(0, SECURE_REST, &Refused::default()).unwrap();
        let (number, stop) = (port.number().unwrap(), CancellationToken::new());
        let handler =
            async |headers: HeaderMap, body: Body| read(&headers, body, QUERY_MAX).await.map(drop);
        let routes = Router::new().route("/", post(handler));
        let serving = tokio::spawn(port.serve(routes, stop.clone()));
        // Neither body ends.
        let start = "POST / HTTP/1.1\r\nhost: x\r\n";
        let announced = format!("{start}content-length: 10485760\r\n\r\n");
        let piece = "x".repeat(QUERY_MAX + 1);
        let length = piece.len();
        let chunked = format!("{start}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{piece}");
        for request in [announced, chunked] {
            let mut stream = TcpStream::connect(("127.0.0.1", number)).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            // A connection that is closed with something unread may end with an error.
            let ended = tokio::time::timeout(BOUND, stream.read_to_end(&mut answer)).await;
            let _ = ended.expect("the connection ends");
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        }
        stop.cancel();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_handful_of_addresses_cannot_take_all_turns() {
        let (begun, goes_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let inside = (begun.clone(), goes_on.clone());
        let slow = move || {
            let (begun, goes_on) = inside.clone();
            async move {
                begun.add_permits(1);
                let permit = goes_on.acquire().await;
                permit.expect("it is never closed").forget();
            }
        };
        let limits = ("rest", Refused::default());
        let routes = Router::new().route("/slow", get(slow));
        let routes = routes.route("/fast", get(async || "here"));
        let routes = bounded(routes, BodyMax::new(), limits);
        let ask = |last: u8, path| {
            let request = Request::get(path).body(Body::empty());
            let mut request = request.expect("it is one");
            let peer = SocketAddr::from(([10, 0, 0, last], 1_024));
            request.extensions_mut().insert(ConnectInfo(peer));
            routes.clone().oneshot(request)
        };
        // Four addresses have all of them, and request more.
        for last in 1..=4 {
            for _ in 0..2 * CONCURRENCY.each {
                drop(tokio::spawn(ask(last, "/slow")));
            }
        }
        let total = u32::try_from(CONCURRENCY.total).unwrap();
        begun.acquire_many(total).await.unwrap().forget();
        let mut newcomer = std::pin::pin!(ask(5, "/fast"));
        assert!(newcomer.as_mut().now_or_never().is_none());
        goes_on.add_permits(1);
        let answer = newcomer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }

    #[test]
    fn a_refusal_names_the_owner_of_the_limit() {
        let refused = |full| busy(full, "requests", "answered").detail;
        assert!(refused(Full::Address(16)).contains("of this address"));
        let all = refused(Full::Total(64));
        assert!(all.starts_with("64 requests are being answered"));
    }
}
