//! Idle values that are used by one thread after the other.
//!
//! The tasks of a test can outlive the values that the test has dropped, but not the thread of the
//! test, which ends after its runtime. So a value that a thread puts back is available to other
//! threads only when that thread has ended.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

thread_local! {
    /// Exists as long as the thread.
    static ALIVE: Arc<()> = Arc::default();
}

/// Idle values.
pub(super) struct IdleItems<T>(Mutex<Vec<Idle<T>>>);

struct Idle<T> {
    value: T,
    /// The last user.
    thread: Weak<()>,
}

impl<T> IdleItems<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Puts a value back after its use by this thread.
    pub(super) fn put(&self, value: T) {
        // A thread that is ending has no user any more.
        let thread = ALIVE.try_with(Arc::downgrade).unwrap_or_default();
        self.0.lock().push(Idle { value, thread });
    }

    /// Takes the value that this thread has put back, or one whose user has ended. Of several it
    /// takes a preferred one, and of these the one that has been idle for the longest time.
    pub(super) fn take(&self, is_preferred: impl Fn(&T) -> bool) -> Option<T> {
        let mut all = self.0.lock();
        let rank = |idle: &Idle<T>| {
            let user = idle.thread.upgrade();
            let is_own = user.map(|user| ALIVE.with(|alive| Arc::ptr_eq(&user, alive)));
            match is_own {
                Some(false) => None,
                Some(true) => Some((0, false)),
                None => Some((1, !is_preferred(&idle.value))),
            }
        };
        let ranked = all.iter().enumerate();
        let ranked = ranked.filter_map(|(index, idle)| Some((rank(idle)?, index)));
        let (_, index) = ranked.min()?;
        Some(all.remove(index).value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    use super::*;

    #[test]
    fn value_of_a_running_thread_is_not_lent() {
        static ITEMS: IdleItems<u32> = IdleItems::new();
        let (go_on, wait) = channel::<()>();
        let (put, is_put) = channel();
        let user = spawn(move || {
            ITEMS.put(1);
            put.send(()).unwrap();
            wait.recv().unwrap();
            let own = ITEMS.take(|_| true);
            ITEMS.put(own.unwrap());
        });
        is_put.recv().unwrap();
        assert_eq!(ITEMS.take(|_| true), None);
        go_on.send(()).unwrap();
        user.join().unwrap();
        assert_eq!(ITEMS.take(|_| true), Some(1));
    }

    #[test]
    fn preferred_value_is_lent_first_and_then_the_oldest() {
        static ITEMS: IdleItems<u32> = IdleItems::new();
        spawn(|| [1, 2, 3, 4].map(|value| ITEMS.put(value)))
            .join()
            .unwrap();
        let taken = [0, 1, 2, 3].map(|_| ITEMS.take(|value| value % 2 == 0));
        assert_eq!(taken, [2, 4, 1, 3].map(Some));
    }
}
