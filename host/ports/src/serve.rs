//! Serves routes on a port for clients from anywhere, within limits on connections, their addresses
//! and their time.

use std::future::ready;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Extensions;
use axum_server::Handle;
use axum_server::accept::Accept;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures::future::{Either, select};
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use super::client_timeout::ClientTimeoutAcceptor;
use super::closable::ClosableAcceptor;
use super::connection_limiter::{Connection, ConnectionLimiter};
use super::limits::Limits;
use super::listen;
use crate::certificates::renewal::CertificateManager;
use crate::certificates::served::ServedCertificates;
use crate::certificates::serving::Serving;
use crate::metrics::Refused;

/// Time limit of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Failure to serve the port.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port cannot be bound.
    #[error("failed to listen on port {0}; is another process using it?")]
    Listen(u16, #[source] std::io::Error),
    /// The listener ended.
    #[error("failed to continue serving port {0}")]
    Serve(u16, #[source] std::io::Error),
}

/// A port that is bound and not served yet.
pub struct Port {
    asked: u16,
    listener: std::net::TcpListener,
    limits: Limits,
    refused: Refused,
}

impl Port {
    /// Binds `port` on every address. Refused connections are counted.
    pub fn listen(port: u16, limits: Limits, refused: &Refused) -> Result<Self, ServeError> {
        let listener = listen(port).map_err(|source| ServeError::Listen(port, source))?;
        Ok(Self {
            asked: port,
            listener,
            limits,
            refused: refused.clone(),
        })
    }

    /// The number of the port, if any free one was requested.
    pub fn number(&self) -> std::io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serves `routes` in plain text until `stop`.
    pub async fn serve(self, routes: Router, stop: CancellationToken) -> Result<(), ServeError> {
        self.run(routes, stop, ClosableAcceptor).await
    }

    /// Serves `routes` over TLS until `stop`.
    pub async fn serve_tls(
        self,
        routes: Router,
        tls: RustlsConfig,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let acceptor = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
        let acceptor = acceptor.acceptor(ClosableAcceptor);
        self.run(routes, stop, acceptor).await
    }

    /// Serves `routes` over TLS until `stop`, with a managed certificate. Waits until there is a
    /// certificate.
    pub async fn serve_managed(
        self,
        routes: Router,
        manager: CertificateManager,
        served: ServedCertificates,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let begun = Serving::start(manager, served);
        let Some(serving) = stop.run_until_cancelled(begun).await else {
            return Ok(());
        };
        let served = Box::pin(self.serve_tls(routes, serving.tls(), stop));
        match select(served, Box::pin(serving.run())).await {
            Either::Left((served, _)) => served,
            Either::Right((never, _)) => match never {},
        }
    }

    async fn run<A>(
        self,
        routes: Router,
        stop: CancellationToken,
        inner: A,
    ) -> Result<(), ServeError>
    where
        A: Accept<TcpStream, Connection, Service = Connection> + Clone + Send + Sync + 'static,
        A::Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        A::Future: Send + 'static,
    {
        let Self {
            asked: port,
            listener,
            limits,
            refused,
        } = self;
        let handle = Handle::<SocketAddr>::new();
        let first = limits.first;
        let mut server = axum_server::from_tcp(listener)
            .map_err(|source| ServeError::Listen(port, source))?
            .acceptor(ClientTimeoutAcceptor { inner, first })
            .handle(handle.clone())
            .http1_only();
        server
            .http_builder()
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_buf_size(limits.head);
        tokio::spawn(async move {
            stop.cancelled().await;
            handle.graceful_shutdown(Some(limits.drain));
        });
        let limiter = ConnectionLimiter::new(routes, limits, refused);
        // Without a permit, the error closes the connection before a task starts for it.
        let connected = service_fn(move |peer| ready(limiter.accept(peer)));
        server
            .serve(connected)
            .await
            .map_err(|source| ServeError::Serve(port, source))
    }
}

/// The address of a request's client. A request without a connection, as in a test, has none.
pub fn address(extensions: &Extensions) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| {
        peer.0.ip().to_canonical()
    })
}

#[cfg(test)]
mod tests;
