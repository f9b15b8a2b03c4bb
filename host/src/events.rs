//! Writes Kubernetes events.

mod queue;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};

pub use queue::EventQueue;

/// Longest note that the API server takes, in bytes.
const NOTE_MAX: usize = 1_000;

/// Writes the events of one process.
struct Publisher {
    client: Client,
    reporter: Reporter,
}

impl Publisher {
    /// `instance` is the name of this process among its replicas.
    fn new(client: Client, controller: &str, instance: Option<String>) -> Self {
        Self {
            client,
            reporter: Reporter {
                controller: controller.to_owned(),
                instance,
            },
        }
    }

    /// Writes an event about an object. One that is lost is no reason to stop: the status says the
    /// same.
    async fn publish(&self, mut event: Event, regarding: &ObjectReference) {
        if let Some(note) = &mut event.note {
            note.truncate(note.floor_char_boundary(NOTE_MAX));
        }
        // A recorder of its own: one that lives on counts a later event as the same one again, and
        // its note, which says why this time, is never shown. It also keeps every event in memory.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        if let Err(error) = recorder.publish(&event, regarding).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, reason = event.reason, "failed to write an event");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use axum::http::{Method, Request, Response};
    use kube::client::Body;
    use kube::runtime::events::EventType;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn what_is_told_again_is_told_in_its_own_words() {
        let asked: Arc<Mutex<Vec<Method>>> = Arc::default();
        let asks = Arc::clone(&asked);
        let api_server = service_fn(move |request: Request<Body>| {
            asks.lock().unwrap().push(request.method().clone());
            async { Ok::<_, Infallible>(Response::new(Body::from(b"{\"metadata\": {}}".to_vec()))) }
        });
        let publisher = Publisher::new(Client::new(api_server, "default"), "tests", None);
        let job = ObjectReference::default();
        for why in ["pod1 is full", "pod2 is full"] {
            let event = Event {
                type_: EventType::Normal,
                reason: "Waiting".to_owned(),
                note: Some(why.to_owned()),
                action: "Place".to_owned(),
                secondary: None,
            };
            publisher.publish(event, &job).await;
        }
        assert_eq!(*asked.lock().unwrap(), [Method::POST, Method::POST]);
    }
}
