//! Limits connections. Each has a permit while it lasts; the permit can be preempted while the
//! server waits for the client.

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

use super::client_timeout::{Arrived, ConnectionEvents};
use super::limits::Limits;
use super::preemptive_semaphore::{Full, Permit, PreemptiveSemaphore, Rank};
use super::rate_limiter::{Rate, RateLimiter, number};
use crate::metrics::Refused;

/// Connections per second of one address, and the burst after an idle time. An API server with many
/// reviews opens one for each request.
const RATE: Rate = Rate::new(number(200), number(400));

/// A connection exceeded a limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of each {0} is reached")]
pub(super) struct TooMany(pub(super) &'static str);

/// Limits the connections of a port, and their rate.
pub(super) struct ConnectionLimiter {
    routes: Router,
    limits: Limits,
    semaphore: PreemptiveSemaphore,
    rate_limiter: RateLimiter<IpAddr>,
    refused: Refused,
}

impl ConnectionLimiter {
    pub(super) fn new(routes: Router, limits: Limits, refused: Refused) -> Self {
        Self {
            routes,
            limits,
            semaphore: PreemptiveSemaphore::new(limits.connections),
            rate_limiter: RateLimiter::new(RATE),
            refused,
        }
    }

    /// Returns the routes for a new connection of this client.
    pub(super) fn accept(&self, peer: SocketAddr) -> Result<Connection, TooMany> {
        let port = self.limits.port;
        let permit = self.acquire(peer.ip().to_canonical());
        let permit = permit.inspect_err(|TooMany(limit)| self.refused.connection(port, limit))?;
        Ok(Connection {
            routes: self.routes.clone(),
            peer,
            arrived: Arrived::default(),
            permit: ConnectionPermit::new(permit, (port, self.refused.clone())),
        })
    }

    fn acquire(&self, address: IpAddr) -> Result<Permit, TooMany> {
        let checked = self.rate_limiter.check(&address);
        checked.map_err(|_| TooMany("rate"))?;
        let permit = match self.semaphore.try_acquire(address, 1) {
            // Many clients may share an address. A new connection may be more useful than a waiting
            // one, especially one that has not finished its handshake.
            Err(Full::Address(_)) if self.semaphore.preempt(address) => {
                self.semaphore.try_acquire(address, 1)
            }
            acquired => acquired,
        };
        permit.map_err(|full| TooMany(full.limit()))
    }
}

/// The permit of a connection. Clones share it.
#[derive(Clone)]
struct ConnectionPermit(Arc<Inner>);

struct Inner {
    permit: Mutex<Permit>,
    preempted: CancellationToken,
    counted: (&'static str, Refused),
}

impl ConnectionPermit {
    fn new(mut permit: Permit, counted: (&'static str, Refused)) -> Self {
        let preempted = permit.preempted();
        permit.set_preemptible(Rank::New);
        Self(Arc::new(Inner {
            permit: Mutex::new(permit),
            preempted,
            counted,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Permit> {
        self.0.permit.lock()
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
    permit: ConnectionPermit,
}

impl ConnectionEvents for Connection {
    fn arrived(&self) -> Arrived {
        self.arrived.clone()
    }

    fn preempted(&self) -> CancellationToken {
        self.permit.0.preempted.clone()
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
        let response = ResponseGuard(self.permit.clone());
        let mut request =
            request.map(|body| Body::new(RequestBody::new(body, self.permit.clone())));
        request.extensions_mut().insert(ConnectInfo(self.peer));
        let answered = self.routes.call(request);
        let guarded = |answer: Response<Body>| {
            answer.map(|body| {
                Body::new(ResponseBody {
                    body,
                    _guard: response,
                })
            })
        };
        answered.map(|answered| answered.map(guarded)).boxed()
    }
}

/// A response in progress. When it is written, the connection waits for its client again.
struct ResponseGuard(ConnectionPermit);

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.lock().set_preemptible(Rank::Idle);
    }
}

/// The body of a request. The connection waits for its client until the end of the body.
struct RequestBody<B> {
    body: B,
    permit: Option<ConnectionPermit>,
}

impl<B: HttpBody> RequestBody<B> {
    fn new(body: B, permit: ConnectionPermit) -> Self {
        permit.lock().set_preemptible(Rank::Idle);
        let permit = Some(permit);
        let mut request = Self { body, permit };
        request.end_if_complete();
        request
    }

    fn end_if_complete(&mut self) {
        if self.body.is_end_stream() {
            self.end();
        }
    }
}

impl<B> RequestBody<B> {
    fn end(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.lock().keep();
        }
    }
}

impl<B: HttpBody + Unpin> HttpBody for RequestBody<B> {
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
            Poll::Ready(Some(Ok(_))) => this.end_if_complete(),
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

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        // The rest of the body is not needed.
        self.end();
    }
}

/// The body of a response.
struct ResponseBody {
    body: Body,
    _guard: ResponseGuard,
}

impl HttpBody for ResponseBody {
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
