//! Admits connections. Each has a place while it lasts; the place can be preempted while the server waits for the
//! client.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use axum::{BoxError, Router};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::{Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::limits::Limits;
use super::pace::{Pace, Rate, number};
use super::patience::{Arrived, Waits};
use super::places::{Full, Place, Places, Rank};
use crate::port::metrics::Refused;

/// Connections per second of one address, and the burst after an idle time. An API server with many reviews opens
/// one for each request.
const RATE: Rate = Rate::new(number(200), number(400));

/// A connection exceeded a limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of each {0} is reached")]
pub(super) struct TooMany(pub(super) &'static str);

/// Admits connections to a port.
pub(super) struct Entrance {
    routes: Router,
    limits: Limits,
    places: Places,
    pace: Pace<IpAddr>,
    refused: Refused,
}

impl Entrance {
    pub(super) fn new(routes: Router, limits: Limits, refused: Refused) -> Self {
        Self {
            routes,
            limits,
            places: Places::new(limits.connections),
            pace: Pace::new(RATE),
            refused,
        }
    }

    pub(super) fn open(&self, peer: SocketAddr) -> Result<Connection, TooMany> {
        let port = self.limits.port;
        let place = self.place(peer.ip().to_canonical());
        let place = place.inspect_err(|TooMany(limit)| self.refused.connection(port, limit))?;
        Ok(Connection {
            routes: self.routes.clone(),
            peer,
            arrived: Arrived::default(),
            standing: Standing::new(place, (port, self.refused.clone())),
        })
    }

    fn place(&self, address: IpAddr) -> Result<Place, TooMany> {
        let pace = self.pace.check(&address);
        pace.map_err(|_| TooMany("rate"))?;
        let place = match self.places.take(address, 1) {
            // Many clients may share an address. A new connection may be more useful than a waiting one, especially one
            // that has not finished its handshake.
            Err(Full::Address(_)) if self.places.preempt(address) => self.places.take(address, 1),
            taken => taken,
        };
        place.map_err(|full| TooMany(full.limit()))
    }
}

/// The place of a connection. Clones share it.
#[derive(Clone)]
struct Standing(Arc<Inner>);

struct Inner {
    place: Mutex<Place>,
    preempted: CancellationToken,
    counted: (&'static str, Refused),
}

impl Standing {
    fn new(mut place: Place, counted: (&'static str, Refused)) -> Self {
        let preempted = place.preempted();
        place.set_preemptible(Rank::New);
        Self(Arc::new(Inner {
            place: Mutex::new(place),
            preempted,
            counted,
        }))
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.place.lock()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.preempted.is_cancelled() {
            let (port, refused) = &self.counted;
            refused.connection(port, "preempted");
        }
    }
}

/// The routes for one connection.
#[derive(Clone)]
pub(super) struct Connection {
    routes: Router,
    peer: SocketAddr,
    arrived: Arrived,
    standing: Standing,
}

impl Waits for Connection {
    fn arrived(&self) -> Arrived {
        self.arrived.clone()
    }

    fn preempted(&self) -> CancellationToken {
        self.standing.0.preempted.clone()
    }
}

impl<B> Service<Request<B>> for Connection
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = <Router as Service<Request<Body>>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Body>>::poll_ready(&mut self.routes, context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.arrived.now();
        let answering = Answering(self.standing.clone());
        let mut request = request.map(|body| Body::new(Asking::new(body, self.standing.clone())));
        request.extensions_mut().insert(ConnectInfo(self.peer));
        let answered = self.routes.call(request);
        let told = |answer: Response<Body>| {
            answer.map(|body| {
                Body::new(Told {
                    body,
                    _until: answering,
                })
            })
        };
        answered.map(|answered| answered.map(told)).boxed()
    }
}

/// A response in progress. When it is written, the connection waits for its client again.
struct Answering(Standing);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.place().set_preemptible(Rank::Idle);
    }
}

/// The body of a request. The connection waits for its client until the end of the body.
struct Asking<B> {
    body: B,
    standing: Option<Standing>,
}

impl<B: HttpBody> Asking<B> {
    fn new(body: B, standing: Standing) -> Self {
        standing.place().set_preemptible(Rank::Idle);
        let standing = Some(standing);
        let mut asking = Self { body, standing };
        asking.look();
        asking
    }

    fn look(&mut self) {
        if self.body.is_end_stream() {
            self.end();
        }
    }
}

impl<B> Asking<B> {
    fn end(&mut self) {
        if let Some(standing) = self.standing.take() {
            standing.place().keep();
        }
    }
}

impl<B: HttpBody + Unpin> HttpBody for Asking<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        match &polled {
            Poll::Ready(None | Some(Err(_))) => this.end(),
            Poll::Ready(Some(Ok(_))) => this.look(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Asking<B> {
    fn drop(&mut self) {
        // The rest of the body is not needed.
        self.end();
    }
}

/// The body of a response.
struct Told {
    body: Body,
    _until: Answering,
}

impl HttpBody for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
