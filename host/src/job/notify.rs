//! Tells of a job in Kubernetes events, beside the reconciles: none of them waits for an event.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use kube::{Client, Resource, ResourceExt};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::kept::OfJob;
use super::raw::RawJob;
use super::report::events::JobEvent;
use crate::events::Publisher;
use crate::names;

/// How many queues there are: that many events are written at a time. Those of one job are in one queue,
/// and so in their order.
const QUEUES: usize = 8;

/// How many batches of events one queue holds. Where more are told, the API server is too slow for all of
/// them, and the status says the same.
const LENGTH: usize = 1_024;

/// How long events that were told of may take at the end of the process.
const DRAIN: Duration = Duration::from_secs(5);

/// Events of one job.
type Batch = (ObjectReference, Vec<Event>);

/// Publishes events about jobs, for as long as it lives.
pub(super) struct Notifier {
    queues: Mutex<Vec<Sender<Batch>>>,
    writing: Mutex<JoinSet<()>>,
    lost: Counter,
}

impl Notifier {
    /// `instance` is the name of this process among its replicas; `lost` counts events that are not
    /// written, because there are too many.
    pub(super) fn new(client: &Client, instance: Option<&str>, lost: Counter) -> Self {
        let (mut queues, mut writing) = (Vec::new(), JoinSet::new());
        for _ in 0..QUEUES {
            let (queue, batches) = channel(LENGTH);
            let instance = instance.map(ToOwned::to_owned);
            let publisher = Publisher::new(client.clone(), names::FIELD_MANAGER, instance);
            queues.push(queue);
            writing.spawn(write(publisher, batches));
        }
        Self {
            queues: Mutex::new(queues),
            writing: Mutex::new(writing),
            lost,
        }
    }

    /// Has events about a job published.
    pub(super) fn publish(&self, job: &RawJob, events: &[JobEvent]) {
        if events.is_empty() {
            return;
        }
        let batch = events.iter().map(|event| to_kubernetes(job, event));
        let batch = (job.object_ref(&()), batch.collect());
        // Every change of it is whole.
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let place = job.job().map_or(0, |job| job.uid.spread(QUEUES));
        let sent = queues
            .get(place)
            .is_some_and(|queue| queue.try_send(batch).is_ok());
        if !sent {
            self.lost.inc_by(events.len() as u64);
        }
    }

    /// Takes no more events, and has those written that it has, within a time.
    pub(super) async fn close(&self) {
        self.queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        let writing =
            std::mem::take(&mut *self.writing.lock().unwrap_or_else(PoisonError::into_inner));
        // What is left then is lost, as with a process that is killed.
        let _ = timeout(DRAIN, writing.join_all()).await;
    }
}

async fn write(publisher: Publisher, mut batches: Receiver<Batch>) {
    while let Some((regarding, events)) = batches.recv().await {
        for event in events {
            publisher.publish(event, &regarding).await;
        }
    }
}

fn to_kubernetes(job: &RawJob, event: &JobEvent) -> Event {
    let about = event.pod.as_ref().map(|pod| ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.clone()),
        namespace: job.namespace(),
        ..ObjectReference::default()
    });
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use axum::http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::Semaphore;
    use tower::service_fn;

    use super::*;

    fn event(note: usize) -> JobEvent {
        JobEvent {
            warning: false,
            reason: "Told",
            action: "Tell",
            note: note.to_string(),
            pod: None,
        }
    }

    #[tokio::test]
    async fn an_api_server_that_takes_no_events_keeps_nobody_waiting_and_takes_no_memory() {
        let permits = Arc::new(Semaphore::new(0));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answers, notes) = (Arc::clone(&permits), Arc::clone(&told));
        let api_server = service_fn(move |request: Request<Body>| {
            let (answers, notes) = (Arc::clone(&answers), Arc::clone(&notes));
            async move {
                answers.acquire().await.unwrap().forget();
                let body = request.into_body().collect_bytes().await.unwrap();
                let event: serde_json::Value = serde_json::from_slice(&body).unwrap();
                notes
                    .lock()
                    .unwrap()
                    .push(event["note"].as_str().unwrap().to_owned());
                Ok::<_, Infallible>(Response::new(Body::from(b"{\"metadata\": {}}".to_vec())))
            }
        });
        let lost = Counter::default();
        let notifier = Notifier::new(&Client::new(api_server, "default"), None, lost.clone());
        let job = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let job: RawJob = serde_json::from_value(job).unwrap();
        // The writer has not run yet: none is taken out of the queue in between.
        for note in 0..LENGTH + 3 {
            notifier.publish(&job, &[event(note)]);
        }
        assert_eq!(lost.get(), 3);
        permits.add_permits(LENGTH);
        notifier.close().await;
        let expected: Vec<String> = (0..LENGTH).map(|note| note.to_string()).collect();
        assert_eq!(*told.lock().unwrap(), expected, "in their order");
        notifier.publish(&job, &[event(0)]);
        assert_eq!(lost.get(), 4);
    }
}
