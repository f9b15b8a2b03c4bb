//! The slots of a queue: each reconcile occupies one, except while it waits for something slow
//! outside the cluster.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of one queue.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
}

/// The slot of a reconcile. The queue has it, too, until the reconcile ends.
#[derive(Clone, Debug)]
pub struct Slot {
    slots: Slots,
    /// `None` while the reconcile waits outside.
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Slots {
    /// No slot is free before [`Slots::open`].
    pub(super) fn closed() -> Self {
        Self {
            free: Arc::new(Semaphore::new(0)),
        }
    }

    pub(super) fn open(&self, count: usize) {
        self.free.add_permits(count);
    }

    /// A slot, if one is free.
    pub(super) fn try_get(&self) -> Option<Slot> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(self.slot(permit))
    }

    /// A slot, once one is free. Reconciles that come back and new ones take turns.
    pub(super) async fn get(&self) -> Slot {
        let permit = self.permit().await;
        self.slot(permit)
    }

    fn slot(&self, permit: OwnedSemaphorePermit) -> Slot {
        let slots = self.clone();
        let permit = Arc::new(Mutex::new(Some(permit)));
        Slot { slots, permit }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        permit.expect("nothing closes the semaphore")
    }
}

impl Slot {
    /// Waits for something that may take minutes, and leaves the slot to other reconciles
    /// meanwhile. The reconcile of this key goes on, so no other one of the key begins. The caller
    /// bounds how many wait like this.
    ///
    /// A reconcile waits for one such future at a time, and to its end: if it drops the future, it
    /// has no slot.
    pub async fn outside<T>(&self, waiting: impl Future<Output = T>) -> T {
        *self.permit.lock() = None;
        let result = waiting.await;
        let permit = self.slots.permit().await;
        *self.permit.lock() = Some(permit);
        result
    }
}
