//! The simulated server's port: accepts connections, refuses them if there is an order to do so,
//! and can close any of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{self, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use vipu_client::proto::user_service_server::UserServiceServer;
use vipu_client::proto::version_service_server::VersionServiceServer;

use crate::faults::Down;
use crate::server::Server;
use crate::service::{Connection, Service, User};

/// Serves the user API on `listener` until `stop`. With an acceptor, it uses TLS.
pub(super) async fn serve(
    listener: TcpListener,
    server: Arc<Server>,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let mut down = server.follow_down();
    let service = Service::new(server.clone());
    let router = tonic::service::Routes::new(UserServiceServer::new(service.clone()))
        .add_service(VersionServiceServer::new(service))
        .prepare()
        .into_axum_router()
        .layer(middleware::from_fn_with_state(server, let_in));
    let endpoint = Endpoint { router, tls };
    let mut listener = Some(listener);
    while !stop.is_cancelled() {
        let state = *down.borrow_and_update();
        if state == Some(Down::Refuse) {
            listener = None;
        } else if listener.is_none() {
            listener = bind_again(address).await;
            continue;
        }
        let connections = stop.child_token();
        tokio::select! {
            () = stop.cancelled() => {}
            () = take(listener.as_ref(), state, &endpoint, &connections) => {}
            () = changed(&mut down) => {}
        }
        connections.cancel();
    }
}

/// The routes of the port, and TLS if it uses it.
#[derive(Clone)]
struct Endpoint {
    router: Router,
    tls: Option<TlsAcceptor>,
}

/// Serves callers with the required metadata, and refuses the others as a gRPC server does. While
/// an order makes replies endless, it serves no caller.
async fn let_in(
    State(server): State<Arc<Server>>,
    mut request: extract::Request,
    next: Next,
) -> Response {
    if let Some(status) = server.refuse_stranger(request.headers()) {
        return status.into_http();
    }
    if server.with(|world, _| world.orders.is_endless()) {
        return server.taken.reply();
    }
    let user = User(Server::user(request.headers()));
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// Accepts connections while it is polled. Without a listener it does nothing.
async fn take(
    listener: Option<&TcpListener>,
    down: Option<Down>,
    endpoint: &Endpoint,
    connections: &CancellationToken,
) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) if down.is_none() => {
                tokio::spawn(greet(stream, endpoint.clone(), connections.child_token()));
            }
            Ok((stream, _)) => drop(stream),
            Err(error) => {
                tracing::warn!(%error, "a connection was not taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Does the TLS handshake if the server uses TLS, and serves the connection.
async fn greet(stream: TcpStream, endpoint: Endpoint, cut: CancellationToken) {
    let Some(tls) = endpoint.tls else {
        return talk(stream, endpoint.router, cut).await;
    };
    tokio::select! {
        () = cut.cancelled() => {}
        shaken = tls.accept(stream) => match shaken {
            Ok(stream) => talk(stream, endpoint.router, cut.clone()).await,
            Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
        }
    }
}

/// Serves one connection until its peer ends it or the server closes it.
async fn talk<S>(stream: S, router: Router, cut: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = router.layer(Extension(Connection(cut.clone())));
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        () = cut.cancelled() => {}
        result = connection => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection ended badly");
            }
        }
    }
}

/// Listens on the same port again. Another process may use it for a moment.
async fn bind_again(address: SocketAddr) -> Option<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(%address, %error, "the port is not free again yet");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

/// Waits for another order. The sender lives as long as the server.
async fn changed(down: &mut watch::Receiver<Option<Down>>) {
    if down.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
