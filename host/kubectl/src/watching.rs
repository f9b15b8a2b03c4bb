//! Watches objects of the cluster, and decides which errors end a watch.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use ipu_dashboard::shown::shown;
use ipu_dashboard::watches::{WATCH_SECONDS, refusal};
use ipu_text::explain;
use kube::Resource;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;

use crate::error::KubectlError;
use crate::output;

/// Time between a change and the next output. Changes within it are combined.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);

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

/// An event. `None`: the watch was interrupted and restarts. If it cannot restart, this prints a
/// warning to stderr, because the output gets stale. An error: the user has lost the right to
/// watch.
pub(crate) fn lasting<K>(
    what: &'static str,
    event: Result<watcher::Event<K>, watcher::Error>,
) -> Result<Option<watcher::Event<K>>, KubectlError> {
    match event {
        Ok(event) => Ok(Some(event)),
        Err(source) if refusal(&source).is_some() => Err(KubectlError::Watch {
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

/// Warning for a user if a watch cannot restart. Without an error: every watch ends at some time.
fn interruption(what: &str, error: &watcher::Error) -> Option<String> {
    match error {
        watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source) => {
            let words = shown(&explain(source));
            Some(format!(
                "cannot read {what}, so what is shown is old; trying again: {words}\n"
            ))
        }
        _ => None,
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
        let hostile =
            kube::Error::Service(Box::new(io::Error::other("\u{1b}[31mred\u{202e}\u{7}")));
        let note = interruption("the Pods", &watcher::Error::WatchStartFailed(hostile)).unwrap();
        assert!(!note.trim_end().contains(char::is_control), "{note:?}");
        assert!(!note.contains('\u{202e}'), "{note:?}");
        let note = interruption("the Pods", &watcher::Error::InitialListFailed(error()));
        assert!(note.is_some());
        let ended = watcher::Error::WatchFailed(error());
        assert_eq!(interruption("the Pods", &ended), None);
    }
}
