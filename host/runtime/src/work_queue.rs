//! A work queue: reconciles objects by key, with limited concurrency and one reconcile of a key at
//! a time.

mod guarded;
pub mod metrics;
mod queue;
mod slot;

use std::hash::Hash;
use std::panic::resume_unwind;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{FutureExt, Stream, StreamExt};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

pub use self::guarded::{ReconcileError, StepError, guarded, measured};
use self::queue::Queue;
pub use self::slot::Slot;
use self::slot::Slots;
use crate::work_queue::metrics::Reconciles;

/// Time of the next reconcile of an object, if no event triggers it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Only after an event.
    Never,
    /// After this delay.
    After(Duration),
    /// After a delay that doubles each time in a row, from `first` up to `most`.
    BackOff {
        /// The first delay.
        first: Duration,
        /// The longest delay.
        most: Duration,
    },
}

impl From<Option<Duration>> for Requeue {
    fn from(delay: Option<Duration>) -> Self {
        delay.map_or(Self::Never, Self::After)
    }
}

/// The settings of a queue.
pub struct Limits<'a> {
    /// Maximum number of concurrent reconciles, without those that wait outside their [`Slot`].
    pub concurrency: usize,
    /// Metrics of the queue and its reconciles.
    pub reconciles: &'a Reconciles,
    /// Ends the queue.
    pub stop: CancellationToken,
}

/// Reconciles each object of `keys`, after `ready`, until the queue is stopped. Then the reconciles
/// in progress finish, and no other starts. If the queue is dropped, all of them end at once.
///
/// It replaces kube's `Controller`, whose tables need more memory for each of thousands of objects
/// than the objects.
///
/// # Panics
/// If a reconcile panics.
pub async fn run<K, R>(
    keys: impl Stream<Item = K>,
    ready: impl Future<Output = ()>,
    reconcile: impl Fn(K, Slot) -> R,
    limits: Limits<'_>,
) where
    K: Clone + Ord + Hash + Send + 'static,
    R: Future<Output: Into<Requeue> + Send> + Send + 'static,
{
    let Limits {
        concurrency,
        reconciles,
        stop,
    } = limits;
    let depth = reconciles.queue_depth();
    let (mut keys, mut ready) = (pin!(keys), pin!(ready.fuse()));
    let (mut queue, mut running) = (Queue::default(), JoinSet::new());
    let (slots, mut slot) = (Slots::closed(), None);
    while !stop.is_cancelled() {
        while let Some(free) = slot.take().or_else(|| slots.try_get()) {
            let (due, now) = (queue.next_due(), Instant::now());
            let Some(key) = queue.get(now) else {
                break;
            };
            reconciles.waited(due.map_or(Duration::ZERO, |due| now - due));
            let work = reconcile(K::clone(&key), free.clone());
            running.spawn(async move {
                let requeue = work.await.into();
                drop(free);
                (key, requeue)
            });
        }
        depth.set(queue.pending());
        let due = queue.next_due();
        tokio::select! {
            () = stop.cancelled() => break,
            () = &mut ready => slots.open(concurrency),
            Some(key) = keys.next() => {
                let before = queue.pending();
                queue.add_at(key, Instant::now());
                if queue.pending() > before {
                    reconciles.added();
                }
            }
            Some(ended) = running.join_next() => {
                let (key, requeue) = ended.unwrap_or_else(|error| resume_panic(error));
                reconciles.requeued(requeue);
                queue.done(key, requeue, Instant::now());
            }
            free = once_due(due, &slots) => slot = Some(free),
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap_or_else(|error| resume_panic(error));
    }
}

/// Returns a slot once a key is due and a slot is free.
async fn once_due(due: Option<Instant>, slots: &Slots) -> Slot {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
    slots.get().await
}

fn resume_panic(error: JoinError) -> ! {
    resume_unwind(error.into_panic())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use futures::channel::mpsc;
    use tokio::sync::{Notify, Semaphore};

    use super::*;

    /// The reconciles of a test.
    #[derive(Default)]
    struct RecordedReconciles {
        begun: Mutex<BTreeMap<Arc<str>, usize>>,
        at_once: Mutex<(usize, usize)>,
        changed: Notify,
        go_on: Notify,
    }

    impl RecordedReconciles {
        async fn reconcile(
            self: Arc<Self>,
            name: Arc<str>,
            pause: Option<u64>,
        ) -> Option<Duration> {
            *self.begun.lock().unwrap().entry(name).or_default() += 1;
            {
                let mut at_once = self.at_once.lock().unwrap();
                at_once.0 += 1;
                at_once.1 = at_once.1.max(at_once.0);
            }
            self.changed.notify_one();
            self.go_on.notified().await;
            self.at_once.lock().unwrap().0 -= 1;
            pause.map(Duration::from_millis)
        }

        async fn until_begun(&self, count: usize) {
            while self.count() < count {
                self.changed.notified().await;
            }
        }

        fn count(&self) -> usize {
            self.begun.lock().unwrap().values().sum()
        }
    }

    async fn queue(
        seen: Arc<RecordedReconciles>,
        asked: mpsc::UnboundedReceiver<Arc<str>>,
        (pause, ready): (Option<u64>, impl Future<Output = ()>),
        stop: CancellationToken,
    ) {
        let limits = Limits {
            concurrency: 2,
            reconciles: &Reconciles::default(),
            stop,
        };
        let reconcile = |name, _slot| Arc::clone(&seen).reconcile(name, pause);
        run(asked, ready, reconcile, limits).await;
    }

    #[tokio::test]
    async fn concurrency_is_limited_and_keys_are_requeued() {
        let (seen, stop) = (
            Arc::<RecordedReconciles>::default(),
            CancellationToken::new(),
        );
        let (names, asked) = mpsc::unbounded::<Arc<str>>();
        let again = (Some(1), future::ready(()));
        let queue = tokio::spawn(queue(Arc::clone(&seen), asked, again, stop.clone()));
        for name in ["a", "b", "c", "a"] {
            names.unbounded_send(name.into()).unwrap();
        }
        seen.until_begun(2).await;
        seen.go_on.notify_one();
        seen.until_begun(3).await;
        for begun in 4..=7 {
            seen.go_on.notify_one();
            seen.go_on.notify_one();
            seen.until_begun(begun).await;
        }
        assert_eq!(seen.at_once.lock().unwrap().1, 2);
        stop.cancel();
        seen.go_on.notify_waiters();
        while !queue.is_finished() {
            seen.go_on.notify_waiters();
            tokio::task::yield_now().await;
        }
        queue.await.unwrap();
        assert_eq!(seen.at_once.lock().unwrap().0, 0, "all have finished");
    }

    #[tokio::test]
    async fn no_reconcile_starts_before_the_queue_is_ready_or_after_it_is_stopped() {
        let (seen, stop) = (
            Arc::<RecordedReconciles>::default(),
            CancellationToken::new(),
        );
        let (names, asked) = mpsc::unbounded::<Arc<str>>();
        let ready = Arc::new(Notify::new());
        let listed = Arc::clone(&ready);
        let once_ready = (None, async move { listed.notified().await });
        let queue = tokio::spawn(queue(Arc::clone(&seen), asked, once_ready, stop.clone()));
        for name in ["a", "b", "c"] {
            names.unbounded_send(name.into()).unwrap();
        }
        while !names.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(seen.count(), 0);
        ready.notify_one();
        seen.until_begun(2).await;
        stop.cancel();
        while !queue.is_finished() {
            seen.go_on.notify_waiters();
            tokio::task::yield_now().await;
        }
        assert_eq!(seen.count(), 2, "the third one waited");
    }

    #[tokio::test]
    async fn a_reconcile_that_waits_outside_leaves_its_slot_to_others() {
        let (names, asked) = mpsc::unbounded::<&str>();
        let (begun, mut seen) = mpsc::unbounded();
        let (answer, stop) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
        let inside = Arc::new(AtomicUsize::new(0));
        let reconcile = |name: &'static str, slot: Slot| {
            let (begun, answer, inside) = (begun.clone(), answer.clone(), inside.clone());
            async move {
                begun.unbounded_send(name).unwrap();
                if name.starts_with("slow") {
                    drop(slot.outside(answer.acquire()).await.unwrap());
                }
                let others = inside.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(others < 2, "{others} others occupy slots");
                begun.unbounded_send(name).unwrap();
                None
            }
        };
        let limits = Limits {
            concurrency: 2,
            reconciles: &Reconciles::default(),
            stop: stop.clone(),
        };
        let queue = run(asked, future::ready(()), reconcile, limits);
        let test = async {
            for name in ["slow a", "slow b", "slow c"] {
                names.unbounded_send(name).unwrap();
                assert_eq!(seen.next().await, Some(name));
            }
            for name in ["d", "e"] {
                names.unbounded_send(name).unwrap();
                for _ in 0..2 {
                    assert_eq!(seen.next().await, Some(name));
                }
            }
            // One that waits is not begun again.
            names.unbounded_send("slow a").unwrap();
            names.unbounded_send("f").unwrap();
            assert_eq!(seen.next().await, Some("f"));
            assert_eq!(seen.next().await, Some("f"));
            stop.cancel();
            answer.add_permits(1);
        };
        tokio::join!(queue, test);
        seen.close();
        let mut ended: Vec<&str> = seen.collect().await;
        ended.sort_unstable();
        assert_eq!(
            ended,
            ["slow a", "slow b", "slow c"],
            "they come to their end"
        );
    }

    #[tokio::test]
    async fn a_dropped_queue_drops_its_reconciles() {
        let seen = Arc::<RecordedReconciles>::default();
        let (names, asked) = mpsc::unbounded::<Arc<str>>();
        names.unbounded_send("a".into()).unwrap();
        let once = (None, future::ready(()));
        let queue = queue(Arc::clone(&seen), asked, once, CancellationToken::new());
        tokio::select! {
            () = queue => panic!("the queue was not stopped"),
            () = seen.until_begun(1) => {}
        }
        while Arc::strong_count(&seen) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(seen.at_once.lock().unwrap().0, 1, "it has not finished");
    }
}
