//! Publishes events about jobs.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};

use super::raw::RawJob;
use super::report::events::JobEvent;
use crate::names;

/// Longest note that the API server takes, in bytes.
const NOTE_MAX: usize = 1_000;

/// Publishes events about jobs.
pub(super) struct Notifier(Recorder);

impl Notifier {
    /// `instance` is the name of this process among its replicas.
    pub(super) fn new(client: Client, instance: Option<String>) -> Self {
        let reporter = Reporter {
            controller: names::FIELD_MANAGER.to_owned(),
            instance,
        };
        Self(Recorder::new(client, reporter))
    }

    /// Publishes events about a job. One that is lost is no reason to stop: status says the same.
    pub(super) async fn publish(&self, job: &RawJob, events: &[JobEvent]) {
        let regarding = job.object_ref(&());
        for event in events {
            let about = event.pod.as_ref().map(|pod| ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.clone()),
                namespace: job.namespace(),
                ..ObjectReference::default()
            });
            let event_object = to_kubernetes(event, about);
            if let Err(error) = self.0.publish(&event_object, &regarding).await {
                tracing::warn!(%error, reason = event.reason, "failed to publish an event");
            }
        }
    }
}

fn to_kubernetes(event: &JobEvent, about: Option<ObjectReference>) -> Event {
    let end = event.note.floor_char_boundary(NOTE_MAX);
    Event {
        type_: if event.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: event.reason.to_owned(),
        note: Some(event.note[..end].to_owned()),
        action: event.action.to_owned(),
        secondary: about,
    }
}
