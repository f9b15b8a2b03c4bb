//! Reconciles objects by name when something asks for it: so many at a time, and each by one at a time.

mod agenda;

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::agenda::Agenda;

/// Reconciles each object that `names` names, `concurrency` of them at a time, until `stop`; then what is
/// under way comes to its end. A reconcile answers after which pause it wants to be called again, where
/// nothing names its object before; none: then alone. Dropped, all of it ends at once.
///
/// Instead of kube's `Controller`, whose tables take more memory for each of thousands of objects than
/// the objects do.
///
/// # Panics
/// Where a reconcile does.
pub(crate) async fn run<R>(
    names: impl Stream<Item = Arc<str>>,
    concurrency: usize,
    reconcile: impl Fn(Arc<str>) -> R,
    stop: CancellationToken,
) where
    R: Future<Output = Option<Duration>> + Send + 'static,
{
    let mut names = pin!(names);
    let (mut agenda, mut running) = (Agenda::default(), JoinSet::new());
    while !stop.is_cancelled() {
        while running.len() < concurrency
            && let Some(name) = agenda.begin(Instant::now())
        {
            let work = reconcile(Arc::clone(&name));
            running.spawn(async move { (name, work.await) });
        }
        let due = agenda.first().filter(|_| running.len() < concurrency);
        tokio::select! {
            () = stop.cancelled() => break,
            Some(name) = names.next() => agenda.want(name, Instant::now()),
            Some(ended) = running.join_next() => {
                let (name, pause) = ended.unwrap_or_else(|error| fall_with(error));
                agenda.end(name, pause.map(|pause| Instant::now() + pause));
            }
            () = until(due) => {}
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap_or_else(|error| fall_with(error));
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

fn fall_with(error: JoinError) -> ! {
    resume_unwind(error.into_panic())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use futures::channel::mpsc;
    use tokio::sync::Notify;

    use super::*;

    /// What the reconciles of a test have done.
    #[derive(Default)]
    struct Seen {
        begun: Mutex<BTreeMap<Arc<str>, usize>>,
        at_once: Mutex<(usize, usize)>,
        changed: Notify,
        go_on: Notify,
    }

    impl Seen {
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
            while self.begun.lock().unwrap().values().sum::<usize>() < count {
                self.changed.notified().await;
            }
        }
    }

    #[tokio::test]
    async fn so_many_run_at_once_and_each_again_after_its_pause() {
        let (seen, stop) = (Arc::<Seen>::default(), CancellationToken::new());
        let (names, asked) = mpsc::unbounded::<Arc<str>>();
        let of = Arc::clone(&seen);
        let reconcile = move |name| Arc::clone(&of).reconcile(name, Some(1));
        let queue = tokio::spawn(run(asked, 2, reconcile, stop.clone()));
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
        assert_eq!(seen.at_once.lock().unwrap().0, 0, "all came to their end");
    }

    #[tokio::test]
    async fn what_is_under_way_ends_with_whoever_dropped_the_queue() {
        let seen = Arc::<Seen>::default();
        let (names, asked) = mpsc::unbounded::<Arc<str>>();
        let of = Arc::clone(&seen);
        let reconcile = move |name| Arc::clone(&of).reconcile(name, None);
        names.unbounded_send("a".into()).unwrap();
        let queue = run(asked, 2, reconcile, CancellationToken::new());
        tokio::select! {
            () = queue => panic!("nobody told it to stop"),
            () = seen.until_begun(1) => {}
        }
        while Arc::strong_count(&seen) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            seen.at_once.lock().unwrap().0,
            1,
            "it never came to its end"
        );
    }
}
