//! Follows the policies' files: a change is in use within a moment, without a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::library::Policies;

/// How long a folder must be quiet before it is looked at, so that a file is not read half-written.
const QUIET: Duration = Duration::from_millis(50);

/// How often the files are looked at without a sign of change, where signs get lost.
const POLL: Duration = Duration::from_secs(10);

impl Policies {
    /// Follows the files of the policies until told to stop. A changed file is checked, compiled,
    /// tried, and swapped in; a broken one is refused and the one before stays. A removed override
    /// gives way to the built-in module.
    pub async fn follow(&self, stop: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let mut watcher = watcher(&changed);
        let mut followed = Vec::new();
        loop {
            for folder in self.folders() {
                if !followed.contains(&folder) && watch(&mut watcher, &folder) {
                    followed.push(folder);
                }
            }
            self.refresh().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed.notified() => settle(&changed).await,
                () = sleep(POLL) => {}
            }
        }
    }
}

/// Waits until no change was signed for a while.
async fn settle(changed: &Notify) {
    while timeout(QUIET, changed.notified()).await.is_ok() {}
}

fn watcher(changed: &Arc<Notify>) -> Option<RecommendedWatcher> {
    let changed = Arc::clone(changed);
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| is_change(event.kind)) {
            changed.notify_one();
        }
    })
    .inspect_err(|error| {
        tracing::warn!(%error, "changes of policies are seen late: the system cannot watch files");
    })
    .ok()
}

/// Whether the event may mean another content; reading the files makes events too.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Watches a folder; a Kubernetes volume changes by a rename in the folder itself.
fn watch(watcher: &mut Option<RecommendedWatcher>, folder: &Path) -> bool {
    let Some(watcher) = watcher else {
        return true;
    };
    if !folder.is_dir() {
        return false;
    }
    watcher
        .watch(folder, RecursiveMode::NonRecursive)
        .inspect_err(|error| {
            tracing::warn!(folder = %folder.display(), %error, "changes in this folder are seen late");
        })
        .is_ok()
}
