//! Changes the log level while the process runs. An admin writes it into a ConfigMap that all
//! replicas follow.

use std::fmt;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use ipu_text::explain;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::runtime::watcher;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload;

use super::{TelemetryError, filter};
use crate::config_map_watch::watch_config_map;
use crate::release::{Process, ReleaseOptions};

/// Changes the filter of the log.
type Change = dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync;

/// The log level. Cheap to clone; all clones change the same log.
#[derive(Clone)]
pub struct LogLevel {
    /// The level of the command line.
    given: Arc<str>,
    change: Arc<Change>,
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("LogLevel");
        shown.field("given", &self.given).finish_non_exhaustive()
    }
}

impl LogLevel {
    pub(super) fn new(
        given: &str,
        change: impl Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            given: given.into(),
            change: Arc::new(change),
        }
    }

    /// Sets the log level. `None`: the level of the command line. An invalid level changes nothing.
    pub fn set(&self, level: Option<&str>) -> Result<(), TelemetryError> {
        let filter = filter(level.unwrap_or(&self.given))?;
        (self.change)(filter).map_err(TelemetryError::Change)
    }

    /// Follows the ConfigMap `<fullname>-log-level` until `stop`. Its key is the name of the
    /// process. Without the key, or without the right to read it, the level of the command line is
    /// set.
    pub async fn follow(
        self,
        client: Client,
        release: &ReleaseOptions,
        process: Process,
        stop: CancellationToken,
    ) {
        let name = format!("{}-log-level", release.fullname);
        let objects = watch_config_map(client, &release.namespace, &name);
        let following = self.follow_objects(process.name(), objects);
        let _ = stop.run_until_cancelled(following).await;
    }

    /// Follows the ConfigMap as it is after each change. `None`: it does not exist.
    pub async fn follow_objects(
        &self,
        key: &str,
        objects: impl Stream<Item = watcher::Result<Option<ConfigMap>>>,
    ) {
        let mut objects = std::pin::pin!(objects);
        let (mut wanted, mut is_lost) = (None, false);
        while let Some(object) = objects.next().await {
            let now = match object {
                Ok(object) => object.and_then(|object| level(&object, key)),
                Err(error) => {
                    if !is_lost {
                        tracing::info!("the log level is not followed: {}", explain(&error));
                    }
                    is_lost = true;
                    continue;
                }
            };
            is_lost = false;
            if now != wanted {
                self.apply(now.as_deref());
                wanted = now;
            }
        }
    }

    fn apply(&self, level: Option<&str>) {
        let said = level.unwrap_or(&self.given);
        match self.set(level) {
            Ok(()) => tracing::warn!(level = said, "the log level was changed"),
            Err(error) => tracing::warn!("the log level did not change: {}", explain(&error)),
        }
    }
}

fn level(object: &ConfigMap, key: &str) -> Option<String> {
    let level = object.data.as_ref()?.get(key)?.trim();
    (!level.is_empty()).then(|| level.to_owned())
}
