//! The stream of events: which views have changed, and that a right of the user has ended.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::Event;
use futures::stream::{self, Stream};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::shared::Shared;
use crate::view::{Changes, View};

/// Time in which further changes are combined into one event.
const PERIOD: Duration = Duration::from_millis(500);

/// An event for a page.
struct Follower {
    shared: Shared,
    changes: watch::Receiver<Changes>,
    sent: Option<Changes>,
    has_ended: bool,
    _permit: OwnedSemaphorePermit,
}

/// An event at once, and one after each change. The stream ends when the API server has ended a
/// watch for good.
pub(super) fn events(
    shared: Shared,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let follower = Follower {
        changes: shared.subscribe(),
        shared,
        sent: None,
        has_ended: false,
        _permit: permit,
    };
    stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    })
}

impl Follower {
    async fn next(&mut self) -> Option<Event> {
        if self.has_ended {
            return None;
        }
        if self.sent.is_some() {
            self.changes.changed().await.ok()?;
            sleep(PERIOD).await;
        }
        let now = *self.changes.borrow_and_update();
        let views = match &self.sent {
            Some(before) => now.views_since(before),
            None => View::ALL.to_vec(),
        };
        self.sent = Some(now);
        let (name, data) = match self.shared.read(Cluster::lost) {
            Some(words) => {
                self.has_ended = true;
                ("ended", json!({"message": words, "views": views}))
            }
            None => ("changed", json!({"views": views})),
        };
        Some(Event::default().event(name).data(data.to_string()))
    }
}
