//! Writes Kubernetes events.

mod queue;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{self, EventType, Recorder, Reporter};

pub use queue::EventQueue;

/// An event about an object; the reasons are stable, because people build alerts on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether somebody should look at it.
    pub is_warning: bool,
    /// A word for programs.
    pub reason: &'static str,
    /// What was being done.
    pub action: &'static str,
    /// A sentence for people.
    pub note: String,
    /// The Pod that it is about, beside the object: events that differ in it are not drawn together.
    pub pod: Option<String>,
}

/// An event that tells how things go on.
pub fn normal(reason: &'static str, action: &'static str, note: String) -> Event {
    Event {
        is_warning: false,
        reason,
        action,
        note,
        pod: None,
    }
}

/// An event that somebody should look at.
pub fn warning(reason: &'static str, action: &'static str, note: String) -> Event {
    Event {
        is_warning: true,
        ..normal(reason, action, note)
    }
}

impl Event {
    /// The same, about a Pod of the object's namespace as well.
    #[must_use]
    pub fn about(self, pod: &str) -> Self {
        Self {
            pod: Some(pod.to_owned()),
            ..self
        }
    }

    /// As the API server takes it, of an object in `namespace`.
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
    async fn publish(&self, event: Event, regarding: &ObjectReference) {
        let event = event.of_kubernetes(regarding.namespace.clone());
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
