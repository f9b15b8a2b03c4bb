//! Callers of slow and hung controllers, on a paused clock.

use std::future;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt;
use tokio::time::{sleep, timeout};

use super::*;

const AGE: Duration = Duration::from_secs(2);

/// Duration of each read of the slow controller.
const SLOW: Duration = Duration::from_secs(3);

/// Timers are up to so much late.
const RESOLUTION: Duration = Duration::from_millis(2);

/// A controller whose reads are counted. The number of used IPUs in an answer is the number of its
/// read.
#[derive(Default)]
struct Controller {
    cache: Arc<ControllerCache>,
    delay: Mutex<Duration>,
    reads: Arc<AtomicU32>,
}

impl Controller {
    fn answering_after(delay: Duration) -> Self {
        Self {
            delay: Mutex::new(delay),
            ..Self::default()
        }
    }

    fn answer_after(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    fn read(&self) -> ReadFuture {
        let (delay, reads) = (*self.delay.lock(), self.reads.clone());
        Box::pin(async move {
            let number = reads.fetch_add(1, Ordering::Relaxed) + 1;
            sleep(delay).await;
            Ok(Inventory::new(16, Vec::new()).and_used(number))
        })
    }

    async fn fresh(&self) -> Option<u32> {
        let answer = self.cache.fresh(AGE, || self.read()).await;
        answer.ok().map(|inventory| inventory.used)
    }

    /// The answer to a caller that does not wait, and checks that.
    async fn soon(&self) -> Option<u32> {
        let called = Instant::now();
        let answer = self.cache.soon(AGE, || self.read()).await;
        let waited = called.elapsed();
        assert!(waited <= SHORT_WAIT + RESOLUTION, "{waited:?}");
        answer.ok().map(|inventory| inventory.used)
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_joins_the_read_in_progress() {
    let controller = Controller::answering_after(Duration::from_secs(9));
    let began = Instant::now();
    let later = async {
        sleep(Duration::from_secs(8)).await;
        controller.fresh().await
    };
    let both = futures::join!(controller.fresh(), later);
    assert_eq!(both, (Some(1), Some(1)));
    assert!(began.elapsed() <= Duration::from_secs(9) + RESOLUTION);
}

#[tokio::test(start_paused = true)]
async fn a_read_ends_without_its_first_caller() {
    let controller = Controller::answering_after(SLOW);
    let first = timeout(Duration::from_secs(1), controller.fresh());
    first.await.unwrap_err();
    assert_eq!(controller.fresh().await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_after_a_change_does_not_get_the_read_before_it() {
    let controller = Controller::answering_after(SLOW);
    let later = async {
        sleep(Duration::from_secs(1)).await;
        controller.cache.state().forget();
        controller.fresh().await
    };
    let both = futures::join!(controller.fresh(), later);
    assert_eq!(both, (Some(1), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_controller_is_read_once_at_a_time_and_its_readings_are_used() {
    let controller = Controller::answering_after(SLOW);
    let began = Instant::now();
    while began.elapsed() < Duration::from_mins(1) {
        let used = controller.soon().await;
        if began.elapsed() > SLOW + RESOLUTION {
            let last = controller.reads() - 1;
            assert!(used.is_some_and(|used| used >= last), "{used:?}");
        }
        sleep(Duration::from_millis(100)).await;
    }
    let reads = controller.reads();
    assert!((10..=20).contains(&reads), "{reads} reads in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_hung_controller_has_its_last_reading_for_a_while_and_is_unreachable_then() {
    let controller = Controller::default();
    assert_eq!(controller.fresh().await, Some(1));
    controller.answer_after(Duration::from_hours(1));
    let answered = Instant::now();
    while answered.elapsed() < Duration::from_mins(2) {
        sleep(Duration::from_secs(1)).await;
        let used = controller.soon().await;
        let is_recent = answered.elapsed() < LAST_AGE;
        assert_eq!(used, is_recent.then_some(1), "{:?}", answered.elapsed());
    }
    let answer = controller.cache.soon(AGE, || controller.read()).await;
    assert_eq!(answer.unwrap_err().reason(), "it has not answered yet");
    assert_eq!(controller.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn after_an_error_a_controller_is_unreachable_until_it_answers() {
    let controller = Controller::default();
    assert_eq!(controller.fresh().await, Some(1));
    sleep(AGE).await;
    let fails = || -> ReadFuture {
        Box::pin(future::ready(Err(VipuError::Incomplete {
            method: "ListPartitions",
            missing: "end",
        })))
    };
    let reason = "its answer to ListPartitions has no end";
    let answer = controller.cache.fresh(AGE, fails).await;
    assert_eq!(answer.unwrap_err().reason(), reason);
    controller.answer_after(SLOW);
    sleep(FAILURE_AGE).await;
    let answer = controller.cache.soon(AGE, || controller.read()).await;
    assert_eq!(answer.unwrap_err().reason(), reason);
    sleep(SLOW).await;
    assert_eq!(controller.soon().await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_caller_did_not_wait_for_is_announced_and_used() {
    let controller = Controller::answering_after(SLOW);
    let late_answers = &controller.cache.late_answers;
    let is_announced = || late_answers.notified().now_or_never().is_some();
    assert_eq!(controller.soon().await, None);
    assert!(!is_announced());
    timeout(Duration::from_mins(1), late_answers.notified())
        .await
        .unwrap();
    assert_eq!((controller.soon().await, controller.reads()), (Some(1), 1));
    sleep(AGE).await;
    assert_eq!(controller.fresh().await, Some(2));
    assert!(!is_announced(), "its caller has waited");
}

#[tokio::test(start_paused = true)]
async fn a_usable_reading_is_returned_at_once_and_renewed_meanwhile() {
    let controller = Controller::answering_after(SLOW);
    let usable = async || {
        let called = Instant::now();
        let read = || controller.read();
        let answer = controller.cache.usable(AGE, 5 * AGE, read).await;
        let waited = called.elapsed();
        assert!(waited <= RESOLUTION, "{waited:?}");
        answer.ok().map(|inventory| inventory.used)
    };
    assert_eq!(controller.fresh().await, Some(1));
    assert_eq!((usable().await, controller.reads()), (Some(1), 1));
    sleep(AGE).await;
    for _ in 0..3 {
        assert_eq!(usable().await, Some(1));
    }
    controller.cache.late_answers.notified().await;
    assert_eq!((usable().await, controller.reads()), (Some(2), 2));
    // A release on this controller is waited for, as by other callers.
    controller.cache.state().forget();
    assert_eq!((controller.soon().await, controller.reads()), (Some(2), 3));
}

#[tokio::test(start_paused = true)]
async fn an_answer_like_the_last_one_is_not_announced_unless_that_was_too_old() {
    let cache = Arc::new(ControllerCache::default());
    let is_announced = || cache.late_answers.notified().now_or_never().is_some();
    let read = || -> ReadFuture {
        Box::pin(async {
            sleep(SLOW).await;
            Ok(Inventory::new(16, Vec::new()))
        })
    };
    cache.fresh(AGE, read).await.unwrap();
    for (age, announced) in [(AGE, false), (LAST_AGE, true)] {
        sleep(age).await;
        let _ = cache.soon(AGE, read).await;
        sleep(SLOW).await;
        assert_eq!(is_announced(), announced, "{age:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_counts_until_a_read_that_began_after_its_end() {
    let controller = Controller::default();
    assert_eq!(controller.fresh().await, Some(1));
    controller.answer_after(SLOW);
    sleep(AGE).await;
    let id = Uid::of("p-1");
    controller.cache.state().begin_request(id, 4);
    assert_eq!(controller.soon().await, Some(5));
    // The controller has refused it, or its answer was lost.
    controller.cache.state().end_request(id);
    controller.cache.state().forget();
    assert_eq!(controller.soon().await, Some(5));
    assert_eq!(controller.fresh().await, Some(3));
}
