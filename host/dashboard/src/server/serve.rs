//! Serves routes on a listener, within limits on connections and on the time for the head of a
//! request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Pause after a connection could not be accepted, for example because the process has too many
/// files open.
const PAUSE: Duration = Duration::from_millis(200);

/// Limits of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time. Further ones wait until one of them ends.
    pub connections: usize,
    /// Time limit of the head of a request, and so of an idle connection.
    pub head: Duration,
}

/// Limits of the page: a browser opens six connections for it, and every program of the machine can
/// open more.
pub const LIMITS: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(10),
};

/// Serves the routes for ever.
pub async fn serve(listener: TcpListener, routes: Router, limits: Limits) -> Infallible {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head);
    let permits = Arc::new(Semaphore::new(limits.connections));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let stream = TokioIo::new(accept(&listener).await);
        let routes = TowerToHyperService::new(routes.clone());
        let connection = server.serve_connection(stream, routes);
        tokio::spawn(async move {
            // A connection that ends early is of no interest to the user.
            let _ = connection.await;
            drop(permit);
        });
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::routing::get;
    use futures::future::join_all;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Barrier;
    use tokio::time::timeout;

    use super::*;

    /// Longest wait of a test.
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn server(routes: Router, limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, routes, limits));
        address
    }

    /// All that the server answers to these bytes before it closes the connection.
    async fn answer(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
        read.expect("the server closes the connection").unwrap();
        answer
    }

    #[tokio::test]
    async fn a_head_that_does_not_come_ends_the_connection() {
        let routes = Router::new().route("/", get(async || "here"));
        let limits = Limits {
            head: Duration::from_millis(50),
            ..LIMITS
        };
        let address = server(routes, limits).await;
        for (request, is_answered) in [
            ("", false),
            ("GET / HTTP/1.1\r\nHost: a\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ] {
            let answer = answer(address, request).await;
            assert_eq!(
                answer.ends_with("here"),
                is_answered,
                "{request:?}: {answer}"
            );
        }
    }

    #[tokio::test]
    async fn so_many_connections_are_served_at_once_and_the_others_in_turn() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // Each request waits until another one is served beside it.
        let pair = Arc::new(Barrier::new(2));
        let seen = Arc::clone(&most);
        let handler = move || {
            let (now, seen, pair) = (Arc::clone(&now), Arc::clone(&seen), Arc::clone(&pair));
            async move {
                let served = now.fetch_add(1, Ordering::SeqCst) + 1;
                seen.fetch_max(served, Ordering::SeqCst);
                pair.wait().await;
                now.fetch_sub(1, Ordering::SeqCst);
                "served"
            }
        };
        let limits = Limits {
            connections: 2,
            ..LIMITS
        };
        let address = server(Router::new().route("/", get(handler)), limits).await;
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let answers = join_all((0..8).map(|_| answer(address, request))).await;
        assert!(answers.iter().all(|answer| answer.ends_with("served")));
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }
}
