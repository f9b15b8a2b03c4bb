//! Queues of Kubernetes events: no reconcile waits until an event is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipu_api::uid::Uid;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Event, Publisher};

/// Number of queues, and so of concurrent writes. All events of one object are in one queue, so
/// their order stays.
const QUEUES: usize = 8;

/// Maximum number of batches in a queue. A longer queue means that the API server is too slow for
/// all events. The status of each object contains the same information.
const LENGTH: usize = 1_024;

/// Time to write the queued events when the process ends.
const DRAIN: Duration = Duration::from_secs(5);

/// Events of one object.
type Batch = (ObjectReference, Vec<Event>);

/// Writes events in the background until it is closed or dropped.
pub struct EventQueue {
    queues: Mutex<Vec<Sender<Batch>>>,
    writing: Mutex<JoinSet<()>>,
    /// Number of events that are not written yet.
    waiting: Arc<AtomicU64>,
    lost: Counter,
}

impl EventQueue {
    /// `controller` and `instance` identify this process in each event. `lost` counts the events
    /// that do not fit into the queues.
    pub fn new(client: &Client, controller: &str, instance: Option<&str>, lost: Counter) -> Self {
        let (mut queues, mut writing) = (Vec::new(), JoinSet::new());
        let waiting = Arc::default();
        for _ in 0..QUEUES {
            let (queue, batches) = channel(LENGTH);
            let instance = instance.map(ToOwned::to_owned);
            let publisher = Publisher::new(client.clone(), controller, instance);
            queues.push(queue);
            writing.spawn(write(publisher, batches, Arc::clone(&waiting)));
        }
        Self {
            queues: Mutex::new(queues),
            writing: Mutex::new(writing),
            waiting,
            lost,
        }
    }

    /// Queues events about an object.
    pub fn publish(&self, regarding: ObjectReference, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let uid = Uid::of(regarding.uid.as_deref().unwrap_or_default());
        let count = events.len() as u64;
        let queues = self.queues.lock();
        self.waiting.fetch_add(count, Ordering::Relaxed);
        let is_queued = queues
            .get(uid.spread(QUEUES))
            .is_some_and(|queue| queue.try_send((regarding, events)).is_ok());
        if !is_queued {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            self.lost.inc_by(count);
        }
    }

    /// Accepts no more events, and writes the queued ones within a time limit.
    pub async fn close(&self) {
        self.queues.lock().clear();
        let writing = std::mem::take(&mut *self.writing.lock());
        if timeout(DRAIN, writing.join_all()).await.is_err() {
            self.lost.inc_by(self.waiting.load(Ordering::Relaxed));
        }
    }
}

async fn write(publisher: Publisher, mut batches: Receiver<Batch>, waiting: Arc<AtomicU64>) {
    while let Some((regarding, events)) = batches.recv().await {
        for event in events {
            publisher.publish(event, &regarding).await;
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::{Request, Response};
    use kube::client::Body;
    use tokio::sync::Semaphore;
    use tower::service_fn;

    use super::*;
    use crate::events::normal;

    fn event(note: usize) -> Event {
        normal("Waiting", "Place", note.to_string())
    }

    #[tokio::test]
    async fn an_api_server_that_takes_no_events_keeps_nobody_waiting_and_takes_no_memory() {
        let permits = Arc::new(Semaphore::new(0));
        let sent: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answers, notes) = (Arc::clone(&permits), Arc::clone(&sent));
        let api_server = service_fn(move |request: Request<Body>| {
            let (answers, notes) = (Arc::clone(&answers), Arc::clone(&notes));
            async move {
                answers.acquire().await.unwrap().forget();
                let body = request.into_body().collect_bytes().await.unwrap();
                let event: serde_json::Value = serde_json::from_slice(&body).unwrap();
                notes
                    .lock()
                    .push(event["note"].as_str().unwrap().to_owned());
                Ok::<_, Infallible>(Response::new(Body::from(b"{\"metadata\": {}}".to_vec())))
            }
        });
        let lost = Counter::default();
        let client = Client::new(api_server, "default");
        let queue = EventQueue::new(&client, "tests", None, lost.clone());
        let job = ObjectReference {
            uid: Some("u".to_owned()),
            ..ObjectReference::default()
        };
        // The writer has not run yet, so it takes no event out of the queue meanwhile.
        for note in 0..LENGTH + 3 {
            queue.publish(job.clone(), vec![event(note)]);
        }
        assert_eq!(lost.get(), 3);
        permits.add_permits(LENGTH);
        // The end of the queue has a deadline, within which a busy machine may not send all.
        while sent.lock().len() < LENGTH {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        queue.close().await;
        let expected: Vec<String> = (0..LENGTH).map(|note| note.to_string()).collect();
        assert_eq!(*sent.lock(), expected, "in their order");
        queue.publish(job, vec![event(0)]);
        assert_eq!(lost.get(), 4);
    }
}
