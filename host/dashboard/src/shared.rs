//! The state of the cluster, shared by the watches, which write it, and the server, which reads it.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::cluster::{Cluster, Kind};
use crate::view::{self, Changes};

/// The state of the cluster, and the number of its changes.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    cluster: Arc<RwLock<Cluster>>,
    changes: watch::Sender<Changes>,
}

impl Shared {
    /// Reads a value. Writers wait meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Cluster) -> T) -> T {
        read(&self.cluster.read())
    }

    /// Changes objects of a kind.
    pub fn update(&self, kind: Kind, change: impl FnOnce(&mut Cluster)) {
        self.update_if(kind, |cluster| {
            change(cluster);
            true
        });
    }

    /// Changes objects of a kind. `change` returns whether a page would show the difference.
    pub fn update_if(&self, kind: Kind, change: impl FnOnce(&mut Cluster) -> bool) {
        let has_changed = change(&mut self.cluster.write());
        if has_changed {
            self.changes.send_modify(|changes| changes.count(kind));
        }
    }

    /// Records the numbers of this moment. They change no view at once.
    pub fn sample(&self, now: Timestamp) {
        let mut cluster = self.cluster.write();
        if let Some(sample) = view::sample(&cluster) {
            cluster.past.record(now, sample);
        }
    }

    /// Follows the changes.
    pub fn subscribe(&self) -> watch::Receiver<Changes> {
        self.changes.subscribe()
    }
}
