//! Access to a volume that may be slow or hang: one at a time, and within a timeout.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

/// Timeout of the work of one access. A network volume whose server is away never answers, and who
/// waits for it has only some seconds for the registry as well. A write that takes longer goes on.
const WORK_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout of the wait for earlier accesses to a volume that answers.
const TURN_TIMEOUT: Duration = Duration::from_secs(3);

/// The accesses of this process to a volume.
pub(super) struct VolumeAccess {
    /// Permit of one access at a time: work without an answer holds its thread.
    turn: Arc<Semaphore>,
    /// Time at which the present turn began.
    since: Arc<Mutex<Option<Instant>>>,
}

/// The present turn. It ends with its work, which can be later than the timeout.
struct Turn {
    since: Arc<Mutex<Option<Instant>>>,
    _permit: OwnedSemaphorePermit,
}

impl Default for VolumeAccess {
    fn default() -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
            since: Arc::default(),
        }
    }
}

impl VolumeAccess {
    /// Does blocking work on the volume. If the work of an earlier access hangs, this fails at
    /// once.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.next_turn().await?;
        let working = spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        let Ok(ended) = timeout(WORK_TIMEOUT, working).await else {
            return Err(no_answer());
        };
        ended.map_err(io::Error::other)?
    }

    /// Waits for a turn. The wait says nothing about the volume: only the age of the present turn
    /// shows that it hangs.
    async fn next_turn(&self) -> io::Result<Turn> {
        if self.is_stuck() {
            return Err(no_answer());
        }
        let permit = timeout(TURN_TIMEOUT, self.turn.clone().acquire_owned()).await;
        let Ok(permit) = permit else {
            return Err(if self.is_stuck() { no_answer() } else { busy() });
        };
        let permit = permit.map_err(io::Error::other)?;
        *self.since.lock() = Some(Instant::now());
        Ok(Turn {
            since: self.since.clone(),
            _permit: permit,
        })
    }

    /// Whether the present turn has taken longer than its work may.
    fn is_stuck(&self) -> bool {
        let since = *self.since.lock();
        since.is_some_and(|since| since.elapsed() >= WORK_TIMEOUT)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The permit is released after this.
        *self.since.lock() = None;
    }
}

fn no_answer() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the volume gives no answer")
}

fn busy() -> io::Error {
    let problem = "the volume is slow, and others of this process wait for it";
    io::Error::new(ErrorKind::ResourceBusy, problem)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;
    use tokio::time::advance;

    use super::*;

    /// Work that reports its begin, and ends when the sender of its answer is dropped.
    struct Work {
        begun: oneshot::Receiver<()>,
        answer: mpsc::Sender<()>,
    }

    fn work() -> (Work, impl FnOnce() -> io::Result<()> + Send + 'static) {
        let (answer, waiting) = mpsc::channel();
        let (begins, begun) = oneshot::channel();
        let working = move || {
            let _ = begins.send(());
            let _ = waiting.recv();
            Ok(())
        };
        (Work { begun, answer }, working)
    }

    fn kind(result: io::Result<()>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_without_an_answer_delays_only_the_first_access() {
        let access = VolumeAccess::default();
        let (first, working) = work();
        let (hung, ()) = tokio::join!(access.run(working), advance(WORK_TIMEOUT));
        assert_eq!(kind(hung), Some(ErrorKind::TimedOut));
        let before = Instant::now();
        let next = access.run(|| Ok(())).await;
        assert_eq!(kind(next), Some(ErrorKind::TimedOut));
        assert_eq!(before.elapsed(), Duration::ZERO);
        drop(first.answer);
        // The turn ends with the work, and not with the access.
        drop(access.turn.acquire().await.unwrap());
        assert_eq!(kind(access.run(|| Ok(())).await), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_volume_that_answers_is_not_stuck() {
        let access = VolumeAccess::default();
        let ((first, first_work), (second, second_work)) = (work(), work());
        let (ended, third_ended) = oneshot::channel();
        let third = async {
            let third = access.run(|| Ok(())).await;
            ended.send(()).unwrap();
            third
        };
        let slow = async {
            first.begun.await.unwrap();
            advance(WORK_TIMEOUT * 2 / 3).await;
            drop(first.answer);
            second.begun.await.unwrap();
            advance(WORK_TIMEOUT * 2 / 3).await;
            third_ended.await.unwrap();
            drop(second.answer);
        };
        let (first, second, third, ()) =
            futures::join!(access.run(first_work), access.run(second_work), third, slow);
        assert_eq!([kind(first), kind(second)], [None, None]);
        assert_eq!(kind(third), Some(ErrorKind::ResourceBusy));
        assert_eq!(kind(access.run(|| Ok(())).await), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_access_that_its_caller_gives_up_is_not_stuck() {
        let access = VolumeAccess::default();
        let (abandoned, working) = work();
        let given_up = timeout(WORK_TIMEOUT / 2, access.run(working));
        assert!(tokio::join!(given_up, advance(WORK_TIMEOUT / 2)).0.is_err());
        let next = async {
            abandoned.begun.await.unwrap();
            drop(abandoned.answer);
        };
        let (next, ()) = tokio::join!(access.run(|| Ok(())), next);
        assert_eq!(kind(next), None);
    }
}
