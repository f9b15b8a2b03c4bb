//! Serves the REST routes on a port, within limits on how long a client may take.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use hyper_util::rt::TokioTimer;
use tokio_util::sync::CancellationToken;

/// How long a client may take to send the head of a request, which is also how long an idle
/// connection is kept.
const HEAD: Duration = Duration::from_mins(1);

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

/// Serves `routes` on `port` of every address until it is told to stop.
pub async fn serve(port: u16, routes: Router, stop: CancellationToken) -> Result<(), ServeError> {
    let listener = listen(port).map_err(|source| ServeError::Listen { port, source })?;
    let handle = Handle::<SocketAddr>::new();
    let mut server = axum_server::from_tcp(listener)
        .map_err(|source| ServeError::Listen { port, source })?
        .handle(handle.clone())
        .http1_only();
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD);
    tokio::spawn(async move {
        stop.cancelled().await;
        handle.graceful_shutdown(Some(DRAIN));
    });
    server
        .serve(routes.into_make_service())
        .await
        .map_err(|source| ServeError::Serve { port, source })
}

/// Both kinds of address where the machine has them, else the older one.
fn listen(port: u16) -> std::io::Result<std::net::TcpListener> {
    let any_v6 = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port));
    let any_v4 = SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, port));
    let listener =
        std::net::TcpListener::bind(any_v6).or_else(|_| std::net::TcpListener::bind(any_v4))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
