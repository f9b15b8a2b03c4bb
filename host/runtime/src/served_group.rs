//! Whether the API server serves an API group of another project, such as that of Kueue.

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::wait;

/// Time between two requests.
const PERIOD: Duration = Duration::from_secs(15);

/// Whether the API server serves a group. Clones share the state, which is `false` until the first
/// answer.
#[derive(Clone, Debug)]
pub struct ServedGroup(watch::Receiver<bool>);

/// Updates a [`ServedGroup`].
#[derive(Debug)]
pub struct ServedGroupWatch {
    group: &'static str,
    version: &'static str,
    served: watch::Sender<bool>,
}

/// Creates the state of a group.
pub fn served_group(group: &'static str, version: &'static str) -> (ServedGroup, ServedGroupWatch) {
    let (sender, receiver) = watch::channel(false);
    let watch = ServedGroupWatch {
        group,
        version,
        served: sender,
    };
    (ServedGroup(receiver), watch)
}

impl Default for ServedGroup {
    /// The group is not served.
    fn default() -> Self {
        Self(watch::channel(false).1)
    }
}

impl ServedGroup {
    /// A group that is served.
    #[cfg(any(test, feature = "fixtures"))]
    pub fn served() -> Self {
        Self(watch::channel(true).1)
    }

    /// Whether the group is served.
    pub fn is_served(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the group is served or not. Waits for ever if nothing updates the state.
    pub async fn wait_until(&self, is_served: bool) {
        wait::until(self.0.clone(), |served| *served == is_served).await;
    }
}

impl ServedGroupWatch {
    /// Reads the served groups periodically until `stop`. A failed request changes nothing.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let mut period = tokio::time::interval(PERIOD);
        while stop.run_until_cancelled(period.tick()).await.is_some() {
            let api_version = format!("{}/{}", self.group, self.version);
            let asked = client.list_api_group_resources(&api_version);
            let is_served = match stop.run_until_cancelled(asked).await {
                Some(Ok(resources)) => !resources.resources.is_empty(),
                Some(Err(kube::Error::Api(status))) if status.code == 404 => false,
                Some(Err(error)) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::debug!(error, group = self.group, "failed to discover an API group");
                    continue;
                }
                None => return,
            };
            let has_changed = self.served.send_if_modified(|served| {
                let has_changed = *served != is_served;
                *served = is_served;
                has_changed
            });
            if has_changed {
                tracing::info!(
                    group = self.group,
                    is_served,
                    "the API server began or stopped serving an API group"
                );
            }
        }
    }
}
