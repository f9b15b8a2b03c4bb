//! Pure: how long to wait before a job is tried again after an error.

use std::collections::HashMap;
use std::time::Duration;

use crate::uid::Uid;

/// The first wait.
const FIRST: Duration = Duration::from_millis(250);

/// The longest wait.
const CEILING: Duration = Duration::from_mins(1);

/// How often each job failed in a row. A job that is made again under the same name is another.
#[derive(Debug, Default)]
pub struct Failures(HashMap<Uid, u32>);

impl Failures {
    /// Counts a failure of a job, and answers how long to wait: each time twice as long, up to a
    /// ceiling.
    pub fn failed(&mut self, job: Uid) -> Duration {
        let count = self.0.entry(job).or_default();
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(*count));
        *count = count.saturating_add(1);
        wait.min(CEILING)
    }

    /// Whether a job has failed since it last went well.
    #[cfg(test)]
    pub(super) fn knows(&self, job: Uid) -> bool {
        self.0.contains_key(&job)
    }

    /// Forgets the failures of a job that went well or is gone.
    pub fn went_well(&mut self, job: Uid) {
        self.0.remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_ceiling_and_start_again_after_a_success() {
        let mut failures = Failures::default();
        let [a, b, c] = ["a", "b", "c"].map(Uid::of);
        let waits: Vec<u128> = (0..10).map(|_| failures.failed(a).as_millis()).collect();
        assert_eq!(
            waits,
            [
                250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000
            ]
        );
        assert_eq!(failures.failed(b), FIRST);
        failures.went_well(a);
        assert_eq!(failures.failed(a), FIRST);
        for _ in 0..100 {
            assert!(failures.failed(c) <= CEILING);
        }
    }
}
