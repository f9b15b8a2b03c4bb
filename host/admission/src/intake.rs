//! Reads webhook calls within limits: bytes of bodies, memory of parsed requests, and concurrent
//! requests, in total and for each address.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ipu_ports::body::{self, BodyError};
use ipu_ports::limits::WEBHOOKS;
use ipu_ports::metrics::Refused;
use ipu_ports::preemptive_semaphore::{Full, Permit, PreemptiveSemaphore, Rank, Share};
use ipu_ports::rate_limiter::{Rate, RateLimiter, number};
use ipu_ports::serve::address;
use ipu_runtime::bounded_json::{BoundedJsonError, Measured};
use ipu_runtime::panics::caught_blocking;
use ipu_text::explain;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::request::{self, AdmissionRequest, RequestError, Reviewed};

/// Size limit of a body, in bytes. The API server accepts objects of 3 MiB; an update has two.
pub const BODY_LIMIT: usize = 8 << 20;

/// Most requests that wait for one kind of capacity. Together with the running requests they are
/// fewer than the connections of the port, so that a new one always finds an idle one to preempt.
const QUEUE: usize = 256;

/// Bytes of all bodies that arrive or wait for memory.
pub const BODIES: Share = Share {
    total: 48 << 20,
    each: 16 << 20,
    queue: QUEUE,
};

/// Memory of all small parsed requests, in bytes.
const SMALL_REQUESTS: Share = Share {
    total: 64 << 20,
    each: 16 << 20,
    queue: QUEUE,
};

/// Memory of all large parsed requests, in bytes. Two addresses can use all of it.
const LARGE_REQUESTS: Share = Share {
    total: 160 << 20,
    each: 112 << 20,
    queue: QUEUE,
};

/// Memory of all parsed requests, in bytes.
pub const MEMORY: usize = SMALL_REQUESTS.total + LARGE_REQUESTS.total;

/// Most memory of a small request, in bytes. A typical IPUJob takes a quarter of it.
const SMALL: usize = 2 << 20;

/// Concurrent requests that call guests.
pub const REQUESTS: Share = Share {
    total: 64,
    each: 16,
    queue: QUEUE,
};

const _: () = assert!(3 * QUEUE + REQUESTS.total < WEBHOOKS.connections.total);

/// Parsed copies of a request: the original, the input and the output of a guest, and the patch.
const TREES: usize = 4;

/// Serialized copies of a request: the original and the input of a guest.
const TEXTS: usize = 2;

/// Memory of the smallest request, in bytes.
const LEAST: usize = 16 << 10;

/// Memory reserved for a body before it arrives, in bytes. It grows as the body arrives.
const FIRST: usize = 16 << 10;

// The share of one address must fit the largest request.
const _: () = assert!(TREES * request::TREE.memory + TEXTS * BODY_LIMIT <= LARGE_REQUESTS.each);

/// The timeouts of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// For the arrival of the body.
    body: Duration,
    /// For capacity. The API server waits for ten seconds, of which guests can take eight.
    capacity: Duration,
}

const TIMEOUTS: Timeouts = Timeouts {
    body: Duration::from_secs(5),
    capacity: Duration::from_secs(2),
};

/// Longest body that is parsed on the async threads.
const SHORT: usize = 64 << 10;

/// Longest message about a malformed call, in characters.
const MESSAGE_MAX: usize = 400;

/// Rate limit of log lines about malformed calls.
const MALFORMED_LOG_RATE: Rate = Rate::new(number(1), number(20));

/// The limits, and the calls under way.
pub(super) struct Intake {
    bodies: PreemptiveSemaphore,
    small: PreemptiveSemaphore,
    large: PreemptiveSemaphore,
    requests: PreemptiveSemaphore,
    refused: Refused,
    malformed_log: RateLimiter<()>,
    timeouts: Timeouts,
}

/// A caller that waits for capacity until a deadline.
struct Caller<'a> {
    intake: &'a Intake,
    address: IpAddr,
    deadline: Instant,
}

impl Caller<'_> {
    async fn acquire(
        &self,
        semaphore: &PreemptiveSemaphore,
        amount: usize,
    ) -> Result<Permit, Refusal> {
        let timeout = self.deadline.saturating_duration_since(Instant::now());
        let acquired = semaphore.acquire(self.address, amount, timeout).await;
        acquired.map_err(|full| self.intake.busy(full))
    }

    /// Reads and measures the body, and acquires the memory for parsing it. While the body arrives
    /// and waits for memory, its permit can be preempted.
    async fn measured(
        &self,
        body: Body,
        length: usize,
        permit: &mut Permit,
    ) -> Result<(Measured<Vec<u8>>, Permit), Refusal> {
        let malformed = |refusal| self.intake.log_malformed(refusal);
        permit.set_preemptible(Rank::Idle);
        let timeout = self.intake.timeouts.body;
        let text = tokio::time::timeout(timeout, self.text(body, length, permit)).await;
        let text = text.map_err(|_| {
            let text = format!("the body did not arrive within {} s", timeout.as_secs());
            malformed(refuse(StatusCode::REQUEST_TIMEOUT, text))
        })??;
        permit.keep();
        let measured = run_off_thread_if_long(length, move || request::measure(text)).await?;
        let measured = measured.map_err(|error| malformed(refusal(&error)))?;
        permit.set_preemptible(Rank::Idle);
        let memory = self.memory(measured.memory(), length).await?;
        Ok((measured, memory))
    }

    /// Acquires the memory for a request of this length, which takes `tree` bytes once parsed.
    async fn memory(&self, tree: usize, length: usize) -> Result<Permit, Refusal> {
        let memory = TREES * tree + TEXTS * length + LEAST;
        let semaphore = match memory {
            ..=SMALL => &self.intake.small,
            _ => &self.intake.large,
        };
        self.acquire(semaphore, memory).await
    }

    /// Reads the body. It acquires memory for the received bytes, not for the announced length.
    async fn text(
        &self,
        mut body: Body,
        length: usize,
        permit: &mut Permit,
    ) -> Result<Vec<u8>, Refusal> {
        let unreadable = |error: &BodyError| {
            let text = format!("the body cannot be read: {}", explain(error));
            let refusal = refuse(StatusCode::BAD_REQUEST, text);
            self.intake.log_malformed(refusal)
        };
        let mut text = Vec::with_capacity(length.min(FIRST));
        while let Some(piece) = body::next(&mut body).await.map_err(|e| unreadable(&e))? {
            let needed = text.len() + piece.len();
            if needed > length {
                return Err(unreadable(&BodyError::TooLong(length)));
            }
            if needed > text.capacity() {
                let grown = (2 * text.capacity()).max(needed).min(length);
                let more = grown - text.capacity();
                permit.merge(self.acquire(&self.intake.bodies, more).await?);
                text.reserve_exact(grown - text.len());
            }
            text.extend_from_slice(&piece);
        }
        Ok(text)
    }
}

/// A request with its capacity.
pub(super) struct Admitted {
    /// The request.
    pub(super) request: AdmissionRequest,
    _permits: [Permit; 2],
}

/// A refused call: its HTTP status and message.
#[derive(Debug)]
pub(super) struct Refusal(StatusCode, String);

impl Refusal {
    /// Returns the message for the user.
    pub(super) fn message(self) -> String {
        self.1
    }

    /// Returns its label in the metrics.
    pub(super) fn verdict(&self) -> &'static str {
        match self.0 {
            StatusCode::SERVICE_UNAVAILABLE => "busy",
            StatusCode::INTERNAL_SERVER_ERROR => "failed",
            _ => "malformed",
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, mut text) = self;
        text.push('\n');
        let mut response = (status, text).into_response();
        // A malformed call ends its connection; a call that is refused for capacity does not.
        let headers = response.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        } else {
            headers.insert(
                header::CONNECTION,
                header::HeaderValue::from_static("close"),
            );
        }
        response
    }
}

impl Intake {
    /// Creates an idle intake with the metrics of refused requests.
    pub(super) fn new(refused: Refused) -> Self {
        Self::with(refused, TIMEOUTS)
    }

    fn with(refused: Refused, timeouts: Timeouts) -> Self {
        Self {
            bodies: PreemptiveSemaphore::new(BODIES),
            small: PreemptiveSemaphore::new(SMALL_REQUESTS),
            large: PreemptiveSemaphore::new(LARGE_REQUESTS),
            requests: PreemptiveSemaphore::new(REQUESTS),
            refused,
            malformed_log: RateLimiter::new(MALFORMED_LOG_RATE),
            timeouts,
        }
    }

    /// Reads a request about an object of this kind once there is capacity for it.
    pub(super) async fn read(
        &self,
        parts: &Parts,
        body: Body,
        reviewed: Reviewed,
    ) -> Result<Admitted, Refusal> {
        let (address, deadline) = (
            address(&parts.extensions),
            Instant::now() + self.timeouts.capacity,
        );
        let length = length(&parts.headers).map_err(|refusal| self.log_malformed(refusal))?;
        let caller = Caller {
            intake: self,
            address,
            deadline,
        };
        let mut permit = caller.acquire(&self.bodies, length.min(FIRST)).await?;
        let preempted = permit.preempted();
        let measured = caller.measured(body, length, &mut permit);
        let measured = preempted.run_until_cancelled(measured).await;
        let (measured, memory) =
            measured.unwrap_or_else(|| Err(self.busy(Full::Total(BODIES.total))))?;
        // From here on the text is part of the memory of the request.
        drop(permit);
        let request =
            run_off_thread_if_long(length, move || request::read(&measured, reviewed)).await?;
        let request = request.map_err(|error| self.log_malformed(refusal(&error)))?;
        let permit = caller.acquire(&self.requests, 1).await?;
        Ok(Admitted {
            request,
            _permits: [memory, permit],
        })
    }

    /// Acquires the memory for an object that is not in the body of its request.
    pub(super) async fn reserve<T: AsRef<[u8]>>(
        &self,
        address: IpAddr,
        object: &Measured<T>,
    ) -> Result<Permit, Refusal> {
        let caller = Caller {
            intake: self,
            address,
            deadline: Instant::now() + self.timeouts.capacity,
        };
        caller.memory(object.memory(), object.length()).await
    }

    fn busy(&self, full: Full) -> Refusal {
        self.refused.request(WEBHOOKS.port, full.limit());
        let whose = match full {
            Full::Address(_) => "of this address ",
            Full::Total(_) => "",
        };
        Refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("too many requests {whose}are being answered already; try again"),
        )
    }

    /// Logs a malformed call, within the rate limit.
    pub(super) fn log_malformed(&self, refusal: Refusal) -> Refusal {
        let Refusal(status, text) = &refusal;
        if self.malformed_log.check(&()).is_ok() {
            warn!(%status, text, "a request to the webhooks is not an AdmissionReview");
        } else {
            debug!(%status, text, "a request to the webhooks is not an AdmissionReview");
        }
        refusal
    }
}

/// Creates a refusal. Its message is cut, because it can contain a whole field.
pub(super) fn refuse(status: StatusCode, text: String) -> Refusal {
    let text = match text.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    };
    Refusal(status, text)
}

/// Returns the announced length of the body.
fn length(headers: &HeaderMap) -> Result<usize, Refusal> {
    let text = |name| {
        let value = headers.get(name);
        value
            .and_then(|value: &header::HeaderValue| value.to_str().ok())
            .unwrap_or_default()
    };
    let content_type = text(header::CONTENT_TYPE);
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let shown: String = essence.chars().take(80).collect();
        return Err(refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the content type is {shown:?}; \"application/json\" is expected"),
        ));
    }
    let Ok(length) = text(header::CONTENT_LENGTH).parse::<usize>() else {
        return Err(refuse(
            StatusCode::LENGTH_REQUIRED,
            "the header Content-Length is missing; say how many bytes the body has".to_owned(),
        ));
    };
    if length > BODY_LIMIT {
        return Err(refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has {length} bytes; the limit is {BODY_LIMIT}"),
        ));
    }
    Ok(length)
}

fn refusal(error: &RequestError) -> Refusal {
    let status = match error {
        RequestError::Unreadable(BoundedJsonError::Memory { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    };
    refuse(status, error.to_string())
}

/// Runs work on a body, off the async threads if the body is long.
async fn run_off_thread_if_long<T: Send + 'static>(
    length: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    if length <= SHORT {
        return Ok(work());
    }
    caught_blocking(work).await.map_err(|panicked| {
        let text = format!("there is no answer: {panicked}");
        refuse(StatusCode::INTERNAL_SERVER_ERROR, text)
    })
}

#[cfg(test)]
mod tests;
