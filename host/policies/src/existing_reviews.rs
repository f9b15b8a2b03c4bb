//! The reviews of the existing objects by policies in mode Shadow: when each is due, and its last result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::ExistingObjects;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::active_set::Version;

/// Time between two reviews by the same version. Objects come and go without a change of the policy.
pub const PERIOD: Duration = Duration::from_mins(10);

/// Delay after a review that failed.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The reviews of all policies. Cheap to clone; all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct ExistingReviews(Arc<Mutex<BTreeMap<String, Review>>>);

/// The last review of one policy.
#[derive(Debug)]
struct Review {
    generation: i64,
    due_at: Instant,
    result: Option<ExistingObjects>,
}

impl ExistingReviews {
    /// Whether the review of a version is due: it has none, or the last one is old.
    pub fn is_due(&self, (uid, generation): &Version, now: Instant) -> bool {
        let reviews = self.0.lock();
        let of_version = reviews
            .get(uid)
            .filter(|review| review.generation == *generation);
        of_version.is_none_or(|review| review.due_at <= now)
    }

    /// Stores the result of a review.
    pub fn store(&self, (uid, generation): &Version, result: ExistingObjects, now: Instant) {
        let review = Review {
            generation: *generation,
            due_at: now + PERIOD,
            result: Some(result),
        };
        self.0.lock().insert(uid.clone(), review);
    }

    /// Postpones the review of a version after a failure. An earlier result stays.
    pub fn postpone(&self, (uid, generation): &Version, now: Instant) {
        let mut reviews = self.0.lock();
        let result = reviews.remove(uid).and_then(|review| review.result);
        let review = Review {
            generation: *generation,
            due_at: now + RETRY_DELAY,
            result: result.filter(|result| result.generation == *generation),
        };
        reviews.insert(uid.clone(), review);
    }

    /// Drops the reviews of all other policies.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.0.lock().retain(|uid, _| is_kept(uid));
    }

    /// Returns the last result of a policy.
    pub fn result(&self, uid: &str) -> Option<ExistingObjects> {
        self.0.lock().get(uid)?.result.clone()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn result(generation: i64) -> ExistingObjects {
        ExistingObjects {
            generation,
            reviewed: 4,
            refused: 2,
            failed: 0,
            samples: Vec::new(),
            at: Time(Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn a_review_is_due_for_each_version_and_after_a_period() {
        let (reviews, now) = (ExistingReviews::default(), Instant::now());
        let version = |generation| ("uid".to_owned(), generation);
        assert!(reviews.is_due(&version(1), now));
        reviews.store(&version(1), result(1), now);
        assert!(!reviews.is_due(&version(1), now));
        assert!(reviews.is_due(&version(1), now + PERIOD));
        assert!(reviews.is_due(&version(2), now), "the settings changed");
        assert_eq!(reviews.result("uid"), Some(result(1)));
        reviews.retain(|uid| uid != "uid");
        assert_eq!(reviews.result("uid"), None);
    }

    #[test]
    fn a_failed_review_keeps_the_earlier_result_of_its_version() {
        let (reviews, now) = (ExistingReviews::default(), Instant::now());
        let version = |generation| ("uid".to_owned(), generation);
        reviews.store(&version(1), result(1), now);
        reviews.postpone(&version(1), now);
        assert!(!reviews.is_due(&version(1), now));
        assert!(reviews.is_due(&version(1), now + RETRY_DELAY));
        assert_eq!(reviews.result("uid"), Some(result(1)));
        reviews.postpone(&version(2), now);
        assert_eq!(reviews.result("uid"), None);
    }
}
