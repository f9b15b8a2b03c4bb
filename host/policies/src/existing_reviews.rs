//! The reviews of the existing objects by policies in mode Shadow: when each is due, and its last
//! result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::ExistingObjects;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::active_set::Version;

/// Time between two reviews by the same version. Objects come and go without a change of the
/// policy.
pub const PERIOD: Duration = Duration::from_mins(10);

/// Delay after a review that failed.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// Time for which a review waits for the labels of a namespace. The operator may lack the right to
/// read them.
const LABELS_TIMEOUT: Duration = Duration::from_mins(1);

/// The reviews of all policies. Cheap to clone; all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct ExistingReviews(Arc<Mutex<BTreeMap<String, Review>>>);

/// The last review of one policy.
#[derive(Debug)]
struct Review {
    generation: i64,
    due_at: Instant,
    result: Option<ExistingObjects>,
    /// A namespace with objects whose labels were not known.
    unlabelled: Option<String>,
}

/// A review that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Reviewed {
    /// The result.
    pub result: ExistingObjects,
    /// A namespace with reviewed objects whose labels were not known.
    pub unlabelled: Option<String>,
}

/// When a review is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Later.
    NotYet,
    /// Now. It is postponed if the labels of a namespace are not known.
    Now,
    /// Now, even if labels are not known: the last review has waited for them in vain.
    WithoutLabels,
}

impl ExistingReviews {
    /// Returns when the review of a version is to start: now, if it has none, the last one is old,
    /// or labels that it lacked are known. `is_labelled` returns whether the labels of a namespace
    /// are known.
    pub fn due(
        &self,
        (uid, generation): &Version,
        now: Instant,
        is_labelled: impl Fn(&str) -> bool,
    ) -> Due {
        let reviews = self.0.lock();
        let of_version = reviews
            .get(uid)
            .filter(|review| review.generation == *generation);
        let Some(review) = of_version else {
            return Due::Now;
        };
        let is_old = review.due_at <= now;
        match review.unlabelled.as_deref().map(is_labelled) {
            Some(true) => Due::Now,
            Some(false) if is_old => Due::WithoutLabels,
            None if is_old => Due::Now,
            Some(false) | None => Due::NotYet,
        }
    }

    /// Stores the result of a review.
    pub fn store(&self, (uid, generation): &Version, reviewed: Reviewed, now: Instant) {
        let review = Review {
            generation: *generation,
            due_at: now + PERIOD,
            result: Some(reviewed.result),
            unlabelled: reviewed.unlabelled,
        };
        self.0.lock().insert(uid.clone(), review);
    }

    /// Postpones the review of a version after a failure. An earlier result stays.
    pub fn postpone(&self, version: &Version, now: Instant) {
        self.postpone_until(version, now + RETRY_DELAY, None);
    }

    /// Postpones the review of a version until the labels of a namespace are known, or a timeout.
    /// An earlier result stays.
    pub fn await_labels(&self, version: &Version, namespace: String, now: Instant) {
        self.postpone_until(version, now + LABELS_TIMEOUT, Some(namespace));
    }

    fn postpone_until(
        &self,
        (uid, generation): &Version,
        due_at: Instant,
        unlabelled: Option<String>,
    ) {
        let mut reviews = self.0.lock();
        let result = reviews.remove(uid).and_then(|review| review.result);
        let review = Review {
            generation: *generation,
            due_at,
            result: result.filter(|result| result.generation == *generation),
            unlabelled,
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

    fn reviewed(generation: i64) -> Reviewed {
        Reviewed {
            result: result(generation),
            unlabelled: None,
        }
    }

    fn version(generation: i64) -> Version {
        ("uid".to_owned(), generation)
    }

    /// When a review is to start while no labels are known.
    fn due(reviews: &ExistingReviews, generation: i64, at: Instant) -> Due {
        reviews.due(&version(generation), at, |_| false)
    }

    #[test]
    fn a_review_is_due_for_each_version_and_after_a_period() {
        let (reviews, now) = (ExistingReviews::default(), Instant::now());
        assert_eq!(due(&reviews, 1, now), Due::Now);
        reviews.store(&version(1), reviewed(1), now);
        assert_eq!(due(&reviews, 1, now), Due::NotYet);
        assert_eq!(due(&reviews, 1, now + PERIOD), Due::Now);
        assert_eq!(due(&reviews, 2, now), Due::Now, "the settings changed");
        assert_eq!(reviews.result("uid"), Some(result(1)));
        reviews.retain(|uid| uid != "uid");
        assert_eq!(reviews.result("uid"), None);
    }

    #[test]
    fn a_failed_review_keeps_the_earlier_result_of_its_version() {
        let (reviews, now) = (ExistingReviews::default(), Instant::now());
        reviews.store(&version(1), reviewed(1), now);
        reviews.postpone(&version(1), now);
        assert_eq!(due(&reviews, 1, now), Due::NotYet);
        assert_eq!(due(&reviews, 1, now + RETRY_DELAY), Due::Now);
        assert_eq!(reviews.result("uid"), Some(result(1)));
        reviews.postpone(&version(2), now);
        assert_eq!(reviews.result("uid"), None);
    }

    #[test]
    fn a_review_waits_for_labels_and_is_repeated_once_they_are_known() {
        let (reviews, now) = (ExistingReviews::default(), Instant::now());
        let once_known = |reviews: &ExistingReviews, namespace: &'static str| {
            reviews.due(&version(1), now, |name| name == namespace)
        };
        reviews.await_labels(&version(1), "team".to_owned(), now);
        assert_eq!(reviews.result("uid"), None, "nothing counts as failed");
        assert_eq!(due(&reviews, 1, now), Due::NotYet);
        assert_eq!(once_known(&reviews, "other"), Due::NotYet);
        assert_eq!(once_known(&reviews, "team"), Due::Now);
        let late = now + LABELS_TIMEOUT;
        assert_eq!(due(&reviews, 1, late), Due::WithoutLabels);

        let unlabelled = Some("team".to_owned());
        let without = Reviewed {
            unlabelled,
            ..reviewed(1)
        };
        reviews.store(&version(1), without, now);
        assert_eq!(due(&reviews, 1, now), Due::NotYet);
        assert_eq!(due(&reviews, 1, now + PERIOD), Due::WithoutLabels);
        assert_eq!(once_known(&reviews, "team"), Due::Now);
    }
}
