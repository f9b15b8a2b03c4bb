//! The simulated server's port: takes connections, refuses them on order, and can cut any of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use ipu_operator::vipu::proto::user_service_server::UserServiceServer;
use ipu_operator::vipu::proto::version_service_server::VersionServiceServer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::faults::Down;
use super::server::Server;
use super::service::{Connection, Service};

/// Serves the user API on `listener` until `stop`.
pub(super) async fn serve(listener: TcpListener, server: Arc<Server>, stop: CancellationToken) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let mut down = server.follow_down();
    let service = Service::new(server);
    let router = tonic::service::Routes::new(UserServiceServer::new(service.clone()))
        .add_service(VersionServiceServer::new(service))
        .prepare()
        .into_axum_router();
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
            () = take(listener.as_ref(), state, &router, &connections) => {}
            () = changed(&mut down) => {}
        }
        connections.cancel();
    }
}

/// Takes connections for as long as it is polled; does nothing without a listener.
async fn take(
    listener: Option<&TcpListener>,
    down: Option<Down>,
    router: &Router,
    connections: &CancellationToken,
) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) if down.is_none() => {
                tokio::spawn(talk(stream, router.clone(), connections.child_token()));
            }
            Ok((stream, _)) => drop(stream),
            Err(error) => {
                tracing::warn!(%error, "a connection was not taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Serves one connection until its peer is done or it is cut.
async fn talk(stream: TcpStream, router: Router, cut: CancellationToken) {
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

/// The same port once more. Somebody else may have it for a moment.
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

/// Waits for another order; the sender lives as long as the server does.
async fn changed(down: &mut watch::Receiver<Option<Down>>) {
    if down.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
