//! The IPUPartitions that wait until no Pod uses a partition. The watch of Pods triggers them, so
//! that none has to list the Pods again and again.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use futures::channel::mpsc::UnboundedSender;
use ipu_api::uid::Uid;
use parking_lot::Mutex;

/// The IPUPartitions that wait, by the id of the partition.
#[derive(Debug, Default)]
pub(crate) struct PodWaits {
    waiting: Mutex<HashMap<Uid, Arc<str>>>,
    reconcile: OnceLock<UnboundedSender<Arc<str>>>,
}

impl PodWaits {
    /// Sends the names of the IPUPartitions to reconcile.
    pub(crate) fn send_to(&self, reconcile: UnboundedSender<Arc<str>>) {
        // One queue of a leader reconciles them.
        let _ = self.reconcile.set(reconcile);
    }

    /// The IPUPartition with this name waits for the end of Pods that use partition `id`.
    pub(crate) fn begin(&self, id: &str, name: &str) {
        self.waiting.lock().insert(Uid::of(id), name.into());
    }

    /// No Pod uses partition `id`.
    pub(crate) fn end(&self, id: &str) {
        self.waiting.lock().remove(&Uid::of(id));
    }

    /// A Pod that used the partition with this id has ended. Others may still use it: then the
    /// IPUPartition begins to wait again.
    pub(crate) fn pod_ended(&self, id: Uid) {
        let name = self.waiting.lock().remove(&id);
        if let (Some(name), Some(reconcile)) = (name, self.reconcile.get()) {
            // The queue may have ended.
            let _ = reconcile.unbounded_send(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;

    #[test]
    fn the_end_of_a_pod_triggers_the_partition_that_waits_for_it() {
        let (waits, (sender, mut names)) = (PodWaits::default(), mpsc::unbounded());
        waits.send_to(sender);
        waits.begin("p-1", "first");
        waits.begin("p-2", "second");
        waits.end("p-2");
        for id in ["p-1", "p-1", "p-2", "p-3"] {
            waits.pod_ended(Uid::of(id));
        }
        let sent = std::iter::from_fn(|| names.try_recv().ok());
        assert_eq!(sent.collect::<Vec<_>>(), ["first".into()]);
    }
}
