//! A client of the API server that writes only while its replica leads.

use std::sync::Arc;

use http::Request;
use kube::Client;
use kube::client::Body;
use tower::{BoxError, service_fn};

use super::Held;

/// This replica may no longer write: another one may lead by now.
#[derive(Debug, thiserror::Error)]
#[error("nothing is written, since another replica may lead by now")]
struct NotLeading;

/// The same client, through which nothing is written once `held` has run out: a process that was paused
/// wakes up in the middle of its work.
pub fn fenced(client: &Client, held: Arc<Held>) -> Client {
    let (namespace, inner) = (client.default_namespace().to_owned(), client.clone());
    let service = service_fn(move |request: Request<Body>| {
        let may_go = request.method().is_safe() || held.is_valid();
        let inner = inner.clone();
        async move {
            if may_go {
                inner.send(request).await.map_err(BoxError::from)
            } else {
                Err(NotLeading.into())
            }
        }
    });
    Client::new(service, namespace)
}
