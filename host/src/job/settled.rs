//! Pure: which jobs' files and rights were found as they should be, so that they are not read again at
//! every reconcile.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

use super::plan::Applicable;

/// How long what was found holds: somebody may edit a Role by hand, and nothing that is watched
/// tells.
const HOLDS: SignedDuration = SignedDuration::from_mins(1);

/// What was found of each job, and when; nothing yet while it is being looked at.
#[derive(Debug, Default)]
pub struct Settled(HashMap<String, Option<(u64, Timestamp)>>);

impl Settled {
    /// Whether a job's objects were found to be just so a moment ago.
    pub fn holds(&self, job: &str, objects: &[Applicable], now: Timestamp) -> bool {
        self.0
            .get(job)
            .copied()
            .flatten()
            .is_some_and(|(found, at)| {
                found == fingerprint(objects) && now.duration_since(at) < HOLDS
            })
    }

    /// Notes that a job's objects are about to be looked at.
    pub fn look(&mut self, job: &str) {
        self.0.insert(job.to_owned(), None);
    }

    /// Notes that a job's objects were found, or made, just so. Where one was removed since the look
    /// began, it may have been found before, and nothing is noted.
    pub fn found(&mut self, job: &str, objects: &[Applicable], now: Timestamp) {
        if let Some(entry) = self.0.get_mut(job) {
            *entry = Some((fingerprint(objects), now));
        }
    }

    /// Forgets a job that is gone, or that something of was removed.
    pub fn forget(&mut self, job: &str) {
        self.0.remove(job);
    }
}

/// The objects name their owner's UID: those of a job that was made again are others.
fn fingerprint(objects: &[Applicable]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let text = serde_json::to_string(objects).expect("a plan can be written as JSON");
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;
    use kube::api::ObjectMeta;

    use super::*;

    fn account(name: &str) -> [Applicable; 1] {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let account = ServiceAccount {
            metadata,
            ..ServiceAccount::default()
        };
        [Applicable::ServiceAccount(account)]
    }

    #[test]
    fn what_was_found_holds_for_a_minute_and_for_the_same_objects() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut settled = Settled::default();
        assert!(!settled.holds("a", &account("x"), at(0)));
        settled.look("a");
        settled.found("a", &account("x"), at(0));
        assert!(settled.holds("a", &account("x"), at(59)));
        assert!(!settled.holds("a", &account("x"), at(60)));
        assert!(!settled.holds("a", &account("y"), at(1)));
        assert!(!settled.holds("b", &account("x"), at(1)));
        settled.forget("a");
        assert!(!settled.holds("a", &account("x"), at(1)));
    }
    #[test]
    fn what_is_removed_during_a_look_is_looked_at_again() {
        let now = Timestamp::UNIX_EPOCH;
        let mut settled = Settled::default();
        settled.look("a");
        settled.forget("a");
        settled.found("a", &account("x"), now);
        assert!(!settled.holds("a", &account("x"), now));
    }
}
