//! The state of the cluster, shared by the watches, which write it, and the server, which reads it.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::cluster::{Cluster, Kind};
use crate::view::Changes;

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
        change(&mut self.cluster.write());
        self.changes.send_modify(|changes| changes.count(kind));
    }

    /// Follows the changes.
    pub fn subscribe(&self) -> watch::Receiver<Changes> {
        self.changes.subscribe()
    }
}
