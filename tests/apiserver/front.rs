//! A server that stands in front of the API server for processes of their own, and passes their
//! requests on by a client of the test.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, StatusCode};
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Largest request of the operator.
const MOST: usize = 4 << 20;

/// A running server. Its drop ends it.
pub(crate) struct Front {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Front {
    /// Starts a server on loopback, without TLS. The client has the rights to impersonate whom
    /// requests name.
    pub(crate) async fn start(client: Client) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(move |request: Request<Body>| {
            let client = client.clone();
            // A request that has arrived is carried out although its process is killed meanwhile.
            let passed = tokio::spawn(async move { passed(&client, request).await });
            async move { passed.await.unwrap() }
        });
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, server }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn passed(client: &Client, request: Request<Body>) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    of_connection(&mut parts.headers);
    let body = to_bytes(body, MOST).await.unwrap();
    let request = Request::from_parts(parts, body.to_vec().into());
    match client.send(request).await {
        Ok(answer) => {
            let (mut parts, body) = answer.into_parts();
            of_connection(&mut parts.headers);
            Response::from_parts(parts, Body::new(body))
        }
        Err(error) => {
            let mut answer = Response::new(Body::from(error.to_string()));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}

/// Removes the headers that belong to one connection.
fn of_connection(headers: &mut HeaderMap) {
    for header in [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING] {
        headers.remove(header);
    }
}
