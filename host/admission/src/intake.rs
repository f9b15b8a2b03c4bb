//! Reads the calls of the webhooks within limits: bytes that are sent, memory of what is made of them, and requests that
//! guests are asked about, for all addresses together and for each.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ipu_runtime::bounded_json::{BoundedJsonError, Measured};
use ipu_runtime::panics::caught_blocking;
use ipu_runtime::port::body::{self, BodyError};
use ipu_runtime::port::metrics::Refused;
use ipu_runtime::port::pace::{Pace, Rate, number};
use ipu_runtime::port::places::{Full, Place, Places, Rank, Share};
use ipu_runtime::port::serve::{WEBHOOKS, address};
use ipu_text::explain;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::request::{self, AdmissionRequest, RequestError, Reviewed};

/// Largest body that is read, in bytes. The API server takes objects of up to 3 MiB, and an update
/// brings two of them.
pub const BODY_LIMIT: usize = 8 << 20;

/// Requests that wait for room of one kind. With those that guests are asked about they are fewer than the connections
/// of the port, so that a newcomer always finds one whose client is waited for, and which gives way.
const QUEUE: usize = 256;

/// Bytes of all bodies that arrive or wait for memory.
pub const BODIES: Share = Share {
    total: 48 << 20,
    each: 16 << 20,
    queue: QUEUE,
};

/// Memory of all small requests once they are read, in bytes.
const OF_SMALL: Share = Share {
    total: 64 << 20,
    each: 16 << 20,
    queue: QUEUE,
};

/// Memory of all others once they are read, in bytes: two addresses may have all of it.
const OF_LARGE: Share = Share {
    total: 160 << 20,
    each: 112 << 20,
    queue: QUEUE,
};

/// Memory of all requests once they are read, in bytes.
pub const MEMORY: usize = OF_SMALL.total + OF_LARGE.total;

/// Most memory of a small request, in bytes. An IPUJob as users write them takes a quarter of it.
const SMALL: usize = 2 << 20;

/// Requests that guests are asked about.
pub const REQUESTS: Share = Share {
    total: 64,
    each: 16,
    queue: QUEUE,
};

const _: () = assert!(3 * QUEUE + REQUESTS.total < WEBHOOKS.connections.total);

/// Trees of a request at the same time: as it was sent, as a guest is given it, as a guest answers, and the patch.
const TREES: usize = 4;

/// Texts of a request at the same time: as it was sent, and as a guest is given it.
const TEXTS: usize = 2;

/// What the smallest request takes, in bytes.
const LEAST: usize = 16 << 10;

/// What a body has before any of it has arrived, in bytes. It gets more as it arrives.
const FIRST: usize = 16 << 10;

// One request must find room in the share of its address.
const _: () = assert!(TREES * request::TREE.memory + TEXTS * BODY_LIMIT <= OF_LARGE.each);

/// How long is waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a body.
    body: Duration,
    /// For room. The API server waits for ten seconds, of which guests may take eight.
    room: Duration,
}

const PATIENCE: Patience = Patience {
    body: Duration::from_secs(5),
    room: Duration::from_secs(2),
};

/// Bodies that are longer are not read on the threads that serve all connections.
const SHORT: usize = 64 << 10;

/// Most characters of what is said of a call that is none.
const TEXT_MAX: usize = 400;

/// Lines of the log about calls that are none.
const COMPLAINTS: Rate = Rate::new(number(1), number(20));

/// What is under way.
pub(super) struct Intake {
    bodies: Places,
    small: Places,
    large: Places,
    requests: Places,
    refused: Refused,
    complaints: Pace<()>,
    patience: Patience,
}

/// Who waits for room, and until when.
struct Caller<'a> {
    intake: &'a Intake,
    address: IpAddr,
    end: Instant,
}

impl Caller<'_> {
    async fn room(&self, places: &Places, amount: usize) -> Result<Place, Refusal> {
        let patience = self.end.saturating_duration_since(Instant::now());
        let taken = places.take_within(self.address, amount, patience).await;
        taken.map_err(|full| self.intake.busy(full))
    }

    /// The body once it is there and was measured, with the memory that reading it takes. While it arrives and while
    /// it waits for memory, its place may be preempted.
    async fn measured(
        &self,
        body: Body,
        length: usize,
        place: &mut Place,
    ) -> Result<(Measured<Vec<u8>>, Place), Refusal> {
        let malformed = |refusal| self.intake.malformed(refusal);
        place.set_preemptible(Rank::Idle);
        let patience = self.intake.patience.body;
        let text = tokio::time::timeout(patience, self.text(body, length, place)).await;
        let text = text.map_err(|_| {
            let text = format!("the body did not arrive within {} s", patience.as_secs());
            malformed(refuse(StatusCode::REQUEST_TIMEOUT, text))
        })??;
        place.keep();
        let measured = unhurried(length, move || request::measured(text)).await?;
        let measured = measured.map_err(|error| malformed(refusal(&error)))?;
        place.set_preemptible(Rank::Idle);
        let memory = TREES * measured.memory() + TEXTS * length + LEAST;
        let places = match memory {
            ..=SMALL => &self.intake.small,
            _ => &self.intake.large,
        };
        let memory = self.room(places, memory).await?;
        Ok((measured, memory))
    }

    /// The text of a body. Room is taken for what has arrived, and not for what is announced.
    async fn text(
        &self,
        mut body: Body,
        length: usize,
        place: &mut Place,
    ) -> Result<Vec<u8>, Refusal> {
        let unreadable = |error: &BodyError| {
            let text = format!("the body cannot be read: {}", explain(error));
            let refusal = refuse(StatusCode::BAD_REQUEST, text);
            self.intake.malformed(refusal)
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
                place.join(self.room(&self.intake.bodies, more).await?);
                text.reserve_exact(grown - text.len());
            }
            text.extend_from_slice(&piece);
        }
        Ok(text)
    }
}

/// A request, and its places.
pub(super) struct Admitted {
    /// The request.
    pub(super) request: AdmissionRequest,
    _places: [Place; 2],
}

/// A call that is not answered: its status, and what is wrong with it.
#[derive(Debug)]
pub(super) struct Refusal(StatusCode, String);

impl Refusal {
    /// As the metrics name it.
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
        // Whoever calls wrongly must come anew; an API server that is refused for want of room goes on.
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
    /// Nothing is under way; what is refused is counted.
    pub(super) fn new(refused: Refused) -> Self {
        Self::with(refused, PATIENCE)
    }

    fn with(refused: Refused, patience: Patience) -> Self {
        Self {
            bodies: Places::new(BODIES),
            small: Places::new(OF_SMALL),
            large: Places::new(OF_LARGE),
            requests: Places::new(REQUESTS),
            refused,
            complaints: Pace::new(COMPLAINTS),
            patience,
        }
    }

    /// Reads a request about an object of this kind once there is room for it.
    pub(super) async fn read(
        &self,
        parts: &Parts,
        body: Body,
        reviewed: Reviewed,
    ) -> Result<Admitted, Refusal> {
        let (address, end) = (
            address(&parts.extensions),
            Instant::now() + self.patience.room,
        );
        let length = length(&parts.headers).map_err(|refusal| self.malformed(refusal))?;
        let caller = Caller {
            intake: self,
            address,
            end,
        };
        let mut place = caller.room(&self.bodies, length.min(FIRST)).await?;
        let preempted = place.preempted();
        let measured = caller.measured(body, length, &mut place);
        let measured = preempted.run_until_cancelled(measured).await;
        let (measured, memory) =
            measured.unwrap_or_else(|| Err(self.busy(Full::Total(BODIES.total))))?;
        // The text counts as memory from here on.
        drop(place);
        let request = unhurried(length, move || request::read(&measured, reviewed)).await?;
        let request = request.map_err(|error| self.malformed(refusal(&error)))?;
        let place = caller.room(&self.requests, 1).await?;
        Ok(Admitted {
            request,
            _places: [memory, place],
        })
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

    /// Tells of a call that is none. Whoever sends many of them does not fill the log.
    pub(super) fn malformed(&self, refusal: Refusal) -> Refusal {
        let Refusal(status, text) = &refusal;
        if self.complaints.check(&()).is_ok() {
            warn!(%status, text, "a call of the webhooks was no admission review");
        } else {
            debug!(%status, text, "a call of the webhooks was no admission review");
        }
        refusal
    }
}

/// A call that is none, and why. What is wrong with a field may repeat the whole of it.
pub(super) fn refuse(status: StatusCode, text: String) -> Refusal {
    let text = match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    };
    Refusal(status, text)
}

/// The length of the body that these headers announce.
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

/// Does work on a body of this length where it keeps no other connection waiting.
async fn unhurried<T: Send + 'static>(
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
