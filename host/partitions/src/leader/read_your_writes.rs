//! Read-your-writes for IPUPartitions: the versions that this process wrote last, so that no
//! reconcile decides on an older copy. The watch lags behind for a moment.

use std::time::{Duration, Instant};

use ipu_api::uid::Uid;
use ipu_runtime::watch_store::{Expectations, version_number};
use parking_lot::Mutex;

/// Longest wait for the watch. Versions go back when an admin restores the API server from a
/// backup. Then the older copy is the current one, and the API server refuses a write if it is not.
const PATIENCE: Duration = Duration::from_secs(5);

/// The version of each object that was written recently.
#[derive(Debug)]
pub(crate) struct ReadYourWrites(Mutex<Expectations>);

impl Default for ReadYourWrites {
    fn default() -> Self {
        Self(Mutex::new(Expectations::new(PATIENCE)))
    }
}

impl ReadYourWrites {
    /// Notes the version of a write to the object with this UID. A version that is not a number
    /// cannot be compared, and is not stored.
    pub(crate) fn note(&self, uid: &str, version: Option<&str>, now: Instant) {
        let uid = Uid::of(uid);
        match version.and_then(version_number) {
            Some(version) => self.0.lock().expect(uid, (uid, version), 0, now),
            None => self.0.lock().observe(uid, uid, u64::MAX),
        }
    }

    /// Returns the remaining wait for the watch. `None`: it has shown the last write.
    pub(crate) fn behind(&self, uid: &str, seen: Option<&str>, now: Instant) -> Option<Duration> {
        let (uid, seen) = (Uid::of(uid), seen.and_then(version_number)?);
        let mut expectations = self.0.lock();
        expectations.observe(uid, uid, seen);
        expectations.remaining(uid, now)
    }

    /// Notes that the finalizer of the object with this UID was removed. An older copy still lists
    /// its partitions, and a reconcile of it would remove those that were given up by force.
    pub(crate) fn note_release(&self, uid: &str, now: Instant) {
        let uid = Uid::of(uid);
        let mut expectations = self.0.lock();
        expectations.observe(uid, uid, u64::MAX);
        expectations.expect(uid, (uid, u64::MAX), 0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_copy_than_was_written_is_waited_for_and_not_for_ever() {
        let (writes, now) = (ReadYourWrites::default(), Instant::now());
        let behind = |seen, after| writes.behind("uid", seen, now + Duration::from_secs(after));
        assert_eq!(behind(Some("1"), 0), None, "nothing was written");
        writes.note("uid", Some("100"), now);
        assert_eq!(behind(Some("99"), 1), Some(Duration::from_secs(4)));
        assert_eq!(behind(Some("99"), 5), None);
        assert_eq!(behind(Some("100"), 1), None);
        assert_eq!(behind(Some("1000"), 1), None);
        assert_eq!(writes.behind("other", Some("1"), now), None);
    }

    #[test]
    fn no_copy_is_current_after_the_finalizer_was_removed() {
        let (writes, now) = (ReadYourWrites::default(), Instant::now());
        let behind = |seen, after| writes.behind("uid", seen, now + Duration::from_secs(after));
        writes.note("uid", Some("100"), now);
        writes.note_release("uid", now);
        assert_eq!(behind(Some("99"), 0), Some(PATIENCE));
        assert_eq!(behind(Some("100"), 1), Some(Duration::from_secs(4)));
        assert_eq!(
            behind(Some("101"), 5),
            None,
            "another finalizer keeps the object"
        );
    }

    #[test]
    fn what_is_no_number_is_not_compared() {
        let (writes, now) = (ReadYourWrites::default(), Instant::now());
        let huge = "9".repeat(60);
        for odd in [
            None,
            Some(""),
            Some("07"),
            Some("+7"),
            Some("x"),
            Some(huge.as_str()),
        ] {
            writes.note("uid", Some("100"), now);
            assert_eq!(writes.behind("uid", odd, now), None, "{odd:?}");
            writes.note("uid", odd, now);
            assert_eq!(writes.behind("uid", Some("7"), now), None, "{odd:?}");
        }
    }
}
