//! Serves REST routes on a port, plain or over TLS, within limits on clients and their time.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use axum_server::Handle;
use axum_server::accept::{Accept, DefaultAcceptor};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures::future::{Either, select};
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio_util::sync::CancellationToken;
use tower::{Service, service_fn};

use crate::certificates::keep::Keeper;
use crate::certificates::serving::Serving;
use crate::port;

/// How long a client may take to send the head of a request, which is also how long an idle
/// connection is kept.
const HEAD: Duration = Duration::from_mins(1);

/// Largest head of a request, in bytes.
const HEAD_MAX: usize = 64 << 10;

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Most connections of one port; more are closed at once.
const CONNECTIONS: usize = 1_024;

/// How long answers under way may take once the process is told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Why the port is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port cannot be had.
    #[error("failed to listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The listener ended.
    #[error("failed to go on serving port {port}")]
    Serve {
        /// The port.
        port: u16,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// A port that is taken and not served yet.
pub struct Port {
    port: u16,
    listener: std::net::TcpListener,
}

impl Port {
    /// Takes `port` of every address.
    pub fn listen(port: u16) -> Result<Self, ServeError> {
        let listener = port::listen(port).map_err(|source| ServeError::Listen { port, source })?;
        Ok(Self { port, listener })
    }

    /// Serves `routes` in plain text until it is told to stop.
    pub async fn serve(self, routes: Router, stop: CancellationToken) -> Result<(), ServeError> {
        self.run(routes, stop, DefaultAcceptor::new()).await
    }

    /// Serves `routes` over TLS until it is told to stop.
    pub async fn serve_tls(
        self,
        routes: Router,
        tls: RustlsConfig,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let acceptor = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
        self.run(routes, stop, acceptor).await
    }

    /// Serves `routes` over TLS until it is told to stop, with a certificate that is kept good
    /// meanwhile. Where there is none yet, it waits for one.
    pub async fn serve_kept(
        self,
        routes: Router,
        keeper: Keeper,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let Some(serving) = stop.run_until_cancelled(Serving::begin(keeper)).await else {
            return Ok(());
        };
        let served = Box::pin(self.serve_tls(routes, serving.tls(), stop));
        match select(served, Box::pin(serving.keep())).await {
            Either::Left((served, _)) => served,
            Either::Right((never, _)) => match never {},
        }
    }

    async fn run<A>(
        self,
        routes: Router,
        stop: CancellationToken,
        acceptor: A,
    ) -> Result<(), ServeError>
    where
        A: Accept<TcpStream, Held, Service = Held> + Clone + Send + Sync + 'static,
        A::Stream: AsyncRead + AsyncWrite + Unpin + Send,
        A::Future: Send,
    {
        let Self { port, listener } = self;
        let handle = Handle::<SocketAddr>::new();
        let mut server = axum_server::from_tcp(listener)
            .map_err(|source| ServeError::Listen { port, source })?
            .acceptor(acceptor)
            .handle(handle.clone())
            .http1_only();
        server
            .http_builder()
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(HEAD_MAX);
        tokio::spawn(async move {
            stop.cancelled().await;
            handle.graceful_shutdown(Some(DRAIN));
        });
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        // Where no place is left, the error closes the connection before a task is begun for it.
        let connected = service_fn(move |_: SocketAddr| ready(Held::new(&routes, &places)));
        server
            .serve(connected)
            .await
            .map_err(|source| ServeError::Serve { port, source })
    }
}

/// The routes for one connection, which holds its place as long as it lasts.
#[derive(Clone)]
struct Held {
    routes: Router,
    _place: Arc<OwnedSemaphorePermit>,
}

impl Held {
    fn new(routes: &Router, places: &Arc<Semaphore>) -> Result<Self, TryAcquireError> {
        let place = Arc::clone(places).try_acquire_owned()?;
        Ok(Self {
            routes: routes.clone(),
            _place: Arc::new(place),
        })
    }
}

impl<B> Service<Request<B>> for Held
where
    Router: Service<Request<B>>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = <Router as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.routes.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.routes.call(request)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::HeaderMap;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::rest::limits;

    #[test]
    fn a_connection_has_a_place_as_long_as_it_lasts() {
        let (routes, places) = (Router::new(), Arc::new(Semaphore::new(1)));
        let first = Held::new(&routes, &places).unwrap();
        let of_a_request = first.clone();
        assert!(Held::new(&routes, &places).is_err());
        drop(first);
        assert!(Held::new(&routes, &places).is_err());
        drop(of_a_request);
        assert!(Held::new(&routes, &places).is_ok());
    }

    /// All that is answered to a request, up to the end of the connection.
    async fn answer(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        let end = stream.read_to_end(&mut text);
        tokio::time::timeout(Duration::from_secs(30), end)
            .await
            .expect("the connection ends")
            .unwrap();
        String::from_utf8(text).unwrap()
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
        let routes = Router::new().route("/", post(slow));
        let port = Port::listen(0).unwrap();
        let number = port.listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(port.serve(routes, stop.clone()));
        let request = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        let asked = tokio::spawn(answer(number, request));
        begun.acquire().await.unwrap().forget();

        stop.cancel();
        let refused = async {
            while TcpStream::connect(("127.0.0.1", number)).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        let late = tokio::time::timeout(Duration::from_secs(30), refused).await;
        late.expect("nobody new is let in");
        goes_on.add_permits(1);
        let answer = asked.await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done"),
            "{answer}"
        );
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_is_too_long_is_refused_unread_and_the_connection_ends() {
        let read = async |headers: HeaderMap, body: Body| {
            limits::read(&headers, body, limits::QUESTION_MAX)
                .await
                .map(drop)
        };
        let routes = Router::new().route("/", post(read));
        let port = Port::listen(0).unwrap();
        let number = port.listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(port.serve(routes, stop.clone()));

        let start = "POST / HTTP/1.1\r\nhost: x\r\n";
        // Neither of the bodies ever comes to its end, and nothing is sent that need not be read: what
        // is left unread would end the connection before the answer arrives.
        let announced = format!("{start}content-length: 10485760\r\n\r\n");
        let piece = "x".repeat(limits::QUESTION_MAX + 1);
        let chunked = format!(
            "{start}transfer-encoding: chunked\r\n\r\n{:x}\r\n{piece}",
            piece.len()
        );
        for request in [announced, chunked] {
            let answer = answer(number, &request).await;
            assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        }
        let long = format!("{start}authorization: Bearer ");
        let long = format!("{long}{}", "x".repeat(HEAD_MAX - long.len()));
        let answer = answer(number, &long).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        stop.cancel();
        serving.await.unwrap().unwrap();
    }
}
