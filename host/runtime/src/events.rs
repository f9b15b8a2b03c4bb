//! Writes Kubernetes events.

mod queue;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{self, EventType, Recorder, Reporter};

pub use queue::EventQueue;

/// An event about an object. Reasons are stable, because users define alerts for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether a user should look at it.
    pub is_warning: bool,
    /// A reason for programs.
    pub reason: &'static str,
    /// The action in progress.
    pub action: &'static str,
    /// A sentence for users.
    pub note: String,
    /// The related Pod. Events that differ in it are not aggregated.
    pub pod: Option<String>,
}

/// An event of type Normal.
pub fn normal(reason: &'static str, action: &'static str, note: String) -> Event {
    Event {
        is_warning: false,
        reason,
        action,
        note,
        pod: None,
    }
}

/// An event of type Warning.
pub fn warning(reason: &'static str, action: &'static str, note: String) -> Event {
    Event {
        is_warning: true,
        ..normal(reason, action, note)
    }
}

impl Event {
    /// Adds a related Pod in the object's namespace.
    #[must_use]
    pub fn about(self, pod: &str) -> Self {
        Self {
            pod: Some(pod.to_owned()),
            ..self
        }
    }

    /// The event for an object in `namespace`, in the type of Kubernetes.
    fn of_kubernetes(self, namespace: Option<String>) -> events::Event {
        let mut note = self.note;
        note.truncate(note.floor_char_boundary(NOTE_MAX));
        events::Event {
            type_: if self.is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: self.reason.to_owned(),
            note: Some(note),
            action: self.action.to_owned(),
            secondary: self.pod.map(|pod| ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod),
                namespace,
                ..ObjectReference::default()
            }),
        }
    }
}

/// Longest note that the API server accepts, in bytes.
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

    /// Writes an event about an object. A lost event is not an error, because the status contains
    /// the same information.
    async fn publish(&self, event: Event, regarding: &ObjectReference) {
        let event = event.of_kubernetes(regarding.namespace.clone());
        // A new recorder for each event. A long-lived recorder aggregates similar events: it would
        // not publish the note of a later one, and it keeps every event in memory.
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
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn a_repeated_event_has_its_own_note() {
        let asked: Arc<Mutex<Vec<Method>>> = Arc::default();
        let asks = Arc::clone(&asked);
        let api_server = service_fn(move |request: Request<Body>| {
            asks.lock().unwrap().push(request.method().clone());
            async { Ok::<_, Infallible>(Response::new(Body::from(b"{\"metadata\": {}}".to_vec()))) }
        });
        let publisher = Publisher::new(Client::new(api_server, "default"), "tests", None);
        let job = ObjectReference::default();
        for why in ["pod1 is full", "pod2 is full"] {
            let event = normal("Waiting", "Place", why.to_owned());
            publisher.publish(event, &job).await;
        }
        assert_eq!(*asked.lock().unwrap(), [Method::POST, Method::POST]);
    }

    #[test]
    fn a_note_fits_and_a_pod_is_of_the_namespace_of_its_job() {
        let event = warning("NodeLost", "Delete", "é".repeat(NOTE_MAX)).about("a-worker-0");
        let written = event.of_kubernetes(Some("vision".to_owned()));
        assert_eq!(written.note.map(|note| note.len()), Some(NOTE_MAX));
        let pod = written.secondary.unwrap();
        assert_eq!(pod.name.as_deref(), Some("a-worker-0"));
        assert_eq!(pod.namespace.as_deref(), Some("vision"));
    }
}
