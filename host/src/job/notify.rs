//! Tells of a job in Kubernetes events.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use kube::{Client, Resource, ResourceExt};

use super::raw::RawJob;
use super::report::events::JobEvent;
use crate::events::Publisher;
use crate::names;

/// Publishes events about jobs.
pub(super) struct Notifier(Publisher);

impl Notifier {
    /// `instance` is the name of this process among its replicas.
    pub(super) fn new(client: Client, instance: Option<String>) -> Self {
        Self(Publisher::new(client, names::FIELD_MANAGER, instance))
    }

    /// Publishes events about a job.
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
            self.0
                .publish(to_kubernetes(event, about), &regarding)
                .await;
        }
    }
}

fn to_kubernetes(event: &JobEvent, about: Option<ObjectReference>) -> Event {
    Event {
        type_: if event.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: event.reason.to_owned(),
        note: Some(event.note.clone()),
        action: event.action.to_owned(),
        secondary: about,
    }
}
