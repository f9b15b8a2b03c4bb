//! Watches of the objects of the cluster, and which of their errors end them.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use kube::Resource;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;

use crate::error::KubectlError;
use crate::output;

/// Time between a change and the next output, in which further changes are gathered.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);

/// Length of a watch, in seconds. The API server checks the rights of the user when a watch begins, and never while it
/// lasts, so it still reports changes for this time after the end of the rights.
const WATCH_SECONDS: u32 = 30;

/// The events of a watch.
pub(crate) type Events<K> = BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>;

/// Watches all objects of a kind.
pub(crate) fn events<K>(api: Api<K>) -> Events<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    selected(api, watcher::Config::default())
}

/// Watches the objects of a kind that the selectors of the configuration match.
pub(crate) fn selected<K>(api: Api<K>, config: watcher::Config) -> Events<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = config.timeout(WATCH_SECONDS);
    watcher(api, config).default_backoff().boxed()
}

/// An event. `None`: the watch was interrupted, and begins again; stderr tells where that fails, because what is shown gets
/// old. An error: the user has lost the right to watch.
pub(crate) fn lasting<K>(
    what: &'static str,
    event: Result<watcher::Event<K>, watcher::Error>,
) -> Result<Option<watcher::Event<K>>, KubectlError> {
    match event {
        Ok(event) => Ok(Some(event)),
        Err(source) if is_refused(&source) => Err(KubectlError::Watch {
            what,
            source: Box::new(source),
        }),
        Err(source) => {
            if let Some(note) = interruption(what, &source) {
                output::write(&mut io::stderr(), &note)?;
            }
            Ok(None)
        }
    }
}

/// What a user reads if a watch cannot begin again. Any watch ends at some time, which is no news.
fn interruption(what: &str, error: &watcher::Error) -> Option<String> {
    match error {
        watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source) => {
            Some(format!(
                "cannot read {what}, so what is shown is old; trying again: {source}\n"
            ))
        }
        _ => None,
    }
}

fn is_refused(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => [401, 403].contains(&status.code),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_watch_that_cannot_begin_again_is_reported_and_one_that_ends_is_not() {
        let error = || kube::Error::Service(Box::new(io::Error::other("connection refused")));
        let note = interruption("the Pods", &watcher::Error::WatchStartFailed(error())).unwrap();
        assert!(note.starts_with("cannot read the Pods"), "{note}");
        assert!(note.contains("connection refused"), "{note}");
        let note = interruption("the Pods", &watcher::Error::InitialListFailed(error()));
        assert!(note.is_some());
        let ended = watcher::Error::WatchFailed(error());
        assert_eq!(interruption("the Pods", &ended), None);
    }
}
