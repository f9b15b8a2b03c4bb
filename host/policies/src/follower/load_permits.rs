//! The permits with which a replica loads modules, one after the other.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::source::REGISTRIES;

/// Modules from registries that are fetched before a load permit is free. A slow registry delays
/// few others.
pub const PREFETCHED: usize = REGISTRIES;

/// Limits how many modules are loaded at once: each takes a core for seconds, and memory.
#[derive(Clone)]
pub(super) struct LoadPermits {
    loading: Arc<Semaphore>,
    prefetched: Arc<Semaphore>,
}

/// Permission to load one module; it ends on drop.
pub(super) struct LoadPermit {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Default for LoadPermits {
    fn default() -> Self {
        Self {
            loading: Arc::new(Semaphore::new(1)),
            prefetched: Arc::new(Semaphore::new(PREFETCHED)),
        }
    }
}

impl LoadPermits {
    /// Waits for a load permit, then fetches the module. A module from a registry, which can be
    /// slow, is fetched first.
    pub(super) async fn acquire<T, E>(
        &self,
        is_remote: bool,
        fetch: impl Future<Output = Result<T, E>>,
    ) -> Result<(T, LoadPermit), E> {
        // Neither semaphore is ever closed.
        let permit =
            async |semaphore: &Arc<Semaphore>| semaphore.clone().acquire_owned().await.ok();
        if is_remote {
            let prefetched = permit(&self.prefetched).await;
            let fetched = fetch.await?;
            let load_permit = LoadPermit {
                _permits: [permit(&self.loading).await, prefetched],
            };
            return Ok((fetched, load_permit));
        }
        let load_permit = LoadPermit {
            _permits: [permit(&self.loading).await, None],
        };
        Ok((fetch.await?, load_permit))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn a_module_is_fetched_with_a_load_permit_and_few_from_registries_before() {
        for (is_remote, most) in [(false, 1), (true, PREFETCHED)] {
            let permits = LoadPermits::default();
            let (held, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let prepared = (0..50).map(async |_| {
                let fetch = async {
                    tokio::task::yield_now().await;
                    seen.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    Ok::<(), ()>(())
                };
                let _permit = permits.acquire(is_remote, fetch).await.unwrap();
                tokio::task::yield_now().await;
                held.fetch_sub(1, Ordering::SeqCst);
            });
            join_all(prepared).await;
            assert_eq!(seen.load(Ordering::SeqCst), most);
        }
    }

    #[tokio::test]
    async fn a_registry_that_never_answers_does_not_delay_other_sources() {
        let permits = LoadPermits::default();
        let never = std::future::pending::<Result<(), ()>>();
        let mut waiting = Box::pin(permits.acquire(true, never));
        assert!(futures::poll!(&mut waiting).is_pending());
        let here = permits.acquire(false, async { Ok::<_, ()>(1) }).await;
        assert_eq!(here.map(|(module, _)| module).ok(), Some(1));
    }
}
