//! How much the REST takes on: the size and pace of requests, and how many are answered at once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::error_handling::HandleErrorLayer;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Router};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, NotUntil, Quota, RateLimiter};
use http_body_util::LengthLimitError;
use tower::ServiceBuilder;

use super::problem::{Kind, Problem};

/// Largest question that is read, in bytes. One has some twenty.
pub(super) const QUESTION_MAX: usize = 4 << 10;

/// Largest IPUPartition that is read, in bytes. One has some three hundred. It is read before it is
/// known who sends it, on as many connections as there may be.
pub(super) const CREATE_MAX: usize = 16 << 10;

/// Longest time that a client may take to send its body.
const BODY: Duration = Duration::from_secs(10);

/// Requests that are answered at the same time; more are turned away at once.
const CONCURRENCY: usize = 64;

/// How long an answer may take. A controller that does not answer is given up before.
const DEADLINE: Duration = Duration::from_secs(40);

/// Requests a second on one port, and how many may come at once after a rest.
const PORT_RATE: (NonZeroU32, NonZeroU32) = (not_zero(200), not_zero(400));

/// Requests a second of one user, and how many may come at once after a rest.
const USER_RATE: (NonZeroU32, NonZeroU32) = (not_zero(50), not_zero(100));

/// Users whose pace is kept in mind before those that have rested are forgotten.
const USERS_MAX: usize = 1_024;

/// The largest body of a POST to each path that takes one, in bytes.
pub(super) type BodyMax = BTreeMap<&'static str, usize>;

/// Puts pace, concurrency and deadline around every route of `router`. A body is read before its
/// request counts as one that is being answered: slow clients keep nobody else from an answer.
pub(super) fn bounded<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    bodies: BodyMax,
) -> Router<S> {
    let pace: Arc<DefaultDirectRateLimiter> = Arc::new(RateLimiter::direct(quota(PORT_RATE)));
    let limits = ServiceBuilder::new()
        .layer(middleware::from_fn_with_state(pace, keep_pace))
        .layer(middleware::from_fn_with_state(Arc::new(bodies), gather))
        .layer(HandleErrorLayer::new(turned_away))
        .load_shed()
        .layer(tower::limit::GlobalConcurrencyLimitLayer::new(CONCURRENCY))
        .timeout(DEADLINE);
    router.layer(limits)
}

/// The pace of each user.
pub(super) struct UserRate(DefaultKeyedRateLimiter<String>);

impl Default for UserRate {
    fn default() -> Self {
        Self(RateLimiter::keyed(quota(USER_RATE)))
    }
}

impl UserRate {
    /// One request in a whole hour, which no machine is too slow to exceed.
    #[cfg(test)]
    pub(super) fn of_an_hour() -> Self {
        let hour =
            Quota::with_period(Duration::from_hours(1)).expect("an hour is longer than nothing");
        Self(RateLimiter::keyed(hour))
    }

    /// Counts one request of this user.
    pub(super) fn check(&self, user: &str) -> Result<(), Problem> {
        if self.0.len() > USERS_MAX {
            self.0.retain_recent();
        }
        let who = format!("the user {user}");
        self.0
            .check_key(&user.to_owned())
            .map_err(|until| too_many(&who, USER_RATE.0, &until))
    }
}

/// Reads a body of at most `max` bytes. A longer one is refused by its announced length, or as soon
/// as it passes the limit; the connection ends then, so that the rest is never read.
pub(super) async fn read(headers: &HeaderMap, body: Body, max: usize) -> Result<Bytes, Problem> {
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
    let read = tokio::time::timeout(BODY, to_bytes(body, max)).await;
    let read = read.map_err(|_| {
        let rule = format!("sent within {} s", BODY.as_secs());
        Problem::of_field(Kind::Slow, "body", "not there in time", &rule)
            .with_header("connection", "close")
    })?;
    read.map_err(|error| {
        let error = error.into_inner();
        if error.is::<LengthLimitError>() {
            too_large("longer")
        } else {
            Problem::of_field(Kind::Malformed, "body", "broken off", &rule)
        }
    })
}

/// Reads the body where the path takes one.
async fn gather(State(bodies): State<Arc<BodyMax>>, request: Request, next: Next) -> Response {
    let max = bodies.get(request.uri().path()).copied();
    let Some(max) = max.filter(|_| request.method() == Method::POST) else {
        return next.run(request).await;
    };
    let (parts, body) = request.into_parts();
    match read(&parts.headers, body, max).await {
        Ok(body) => next.run(Request::from_parts(parts, body.into())).await,
        Err(problem) => problem.into_response(),
    }
}

async fn keep_pace(
    State(pace): State<Arc<DefaultDirectRateLimiter>>,
    request: Request,
    next: Next,
) -> Response {
    match pace.check() {
        Ok(()) => next.run(request).await,
        Err(until) => too_many("this port", PORT_RATE.0, &until).into_response(),
    }
}

fn too_many(
    who: &str,
    rate: NonZeroU32,
    until: &NotUntil<<DefaultClock as Clock>::Instant>,
) -> Problem {
    let wait = until.wait_time_from(DefaultClock::default().now());
    let seconds = wait.as_secs() + 1;
    let detail = format!("{who} may be asked {rate} times a second; try again in {seconds} s");
    Problem::new(Kind::TooMany, detail).with_header("retry-after", seconds.to_string())
}

async fn turned_away(error: BoxError) -> Problem {
    if error.is::<tower::timeout::error::Elapsed>() {
        let detail = format!(
            "the V-IPU controllers or the API server gave no answer within {} s",
            DEADLINE.as_secs()
        );
        Problem::new(Kind::Late, detail)
    } else {
        let detail = format!("{CONCURRENCY} requests are being answered already; try again");
        Problem::new(Kind::Unavailable, detail).with_header("retry-after", "1")
    }
}

const fn not_zero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a pace is not zero")
}

fn quota((rate, burst): (NonZeroU32, NonZeroU32)) -> Quota {
    Quota::per_second(rate).allow_burst(burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_asks_too_often_is_told_when_to_come_back_and_others_go_on() {
        let rate = UserRate::default();
        let answers: Vec<_> = (0..1_000).map(|_| rate.check("a")).collect();
        let good = answers.iter().filter(|answer| answer.is_ok()).count();
        assert!((100..1_000).contains(&good), "{good}");
        let problem = answers.into_iter().find_map(Result::err).unwrap();
        assert_eq!(problem.kind, Kind::TooMany);
        assert_eq!(problem.headers, [("retry-after", "1".to_owned())]);
        assert!(problem.detail.contains("the user a may be asked 50 times"));
        assert_eq!(rate.check("b"), Ok(()));
    }
}
