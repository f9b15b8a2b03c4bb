//! A client of the API server that writes only while its replica leads.

use std::sync::Arc;

use http::Request;
use kube::Client;
use kube::client::Body;
use tower::{BoxError, service_fn};

use super::Leadership;

/// This replica may not write, because another one may lead.
#[derive(Debug, thiserror::Error)]
#[error("stopped: this replica's leadership has expired")]
struct NotLeading;

/// Returns a client that writes nothing after the leadership has expired: a process that was paused
/// may wake up between two writes.
pub fn fenced(client: &Client, leadership: Arc<Leadership>) -> Client {
    let (namespace, inner) = (client.default_namespace().to_owned(), client.clone());
    let service = service_fn(move |request: Request<Body>| {
        let is_allowed = request.method().is_safe() || leadership.is_valid();
        let inner = inner.clone();
        async move {
            if is_allowed {
                inner.send(request).await.map_err(BoxError::from)
            } else {
                Err(NotLeading.into())
            }
        }
    });
    Client::new(service, namespace)
}
