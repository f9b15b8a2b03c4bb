//! Pure: how long a request has waited, in the units of the reservations.

use jiff::{SignedDuration, Timestamp};

/// The shortest day of the queue.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Minimum length of a day of the queue, in backfill limits. The limit is about as long as jobs
/// run, and a controller whose jobs run for longer needs more time until it is empty.
const LIMITS_OF_A_DAY: i32 = 4;

const DAYS_OF_A_WEEK: usize = 7;

/// Wait of a request, and the limit after which capacity is reserved for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    waited: SignedDuration,
    limit: SignedDuration,
}

impl Wait {
    /// The wait from `since` until `now`.
    pub(super) fn new(since: Timestamp, now: Timestamp, limit: SignedDuration) -> Self {
        Self {
            waited: now.duration_since(since).max(SignedDuration::ZERO),
            limit: limit.max(SignedDuration::from_secs(1)),
        }
    }

    /// The wait since the end of the first day, which counts as the first limit. `None` within that
    /// day.
    pub(super) fn after_a_day(self) -> Option<Self> {
        let waited = self.waited.saturating_sub(self.day());
        let counted = || Self {
            waited: waited.saturating_add(self.limit),
            ..self
        };
        (!waited.is_negative()).then(counted)
    }

    /// Returns the number of limits that the request has waited for.
    pub(super) fn limits(self) -> usize {
        count(self.waited, self.limit)
    }

    pub(super) fn weeks(self) -> usize {
        self.days() / DAYS_OF_A_WEEK
    }

    /// After four weeks, the number of the turn: the first one has four weeks, the next one eight,
    /// and so on.
    pub(super) fn turn(self) -> Option<u32> {
        (self.weeks() / 4).checked_ilog2()
    }

    /// Whether all controllers that suit the request may be reserved for it. They are in the first
    /// day, and open to others in the next one, then two days each, four days each, and so on.
    pub(super) fn may_have_all(self) -> bool {
        let round = (self.days() / 2 + 1).ilog2();
        let length = 1 << round;
        let begin = 2 * (length - 1);
        self.days() - begin < length
    }

    /// The stage of the request: in a later stage, other controllers may be reserved for it, or
    /// more of them.
    pub(super) fn stage(self) -> usize {
        if self.limits() == 0 {
            0
        } else {
            1 + self.days()
        }
    }

    fn days(self) -> usize {
        count(self.waited, self.day())
    }

    fn day(self) -> SignedDuration {
        DAY.max(self.limit.saturating_mul(LIMITS_OF_A_DAY))
    }
}

fn count(time: SignedDuration, of: SignedDuration) -> usize {
    usize::try_from(time.as_secs() / of.as_secs()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(hours: i64) -> Wait {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let since = now - SignedDuration::from_hours(hours);
        Wait::new(since, now, SignedDuration::from_hours(6))
    }

    #[test]
    fn a_request_may_have_all_controllers_for_half_of_the_time() {
        let days = (0..14).map(|day| wait(24 * day).may_have_all());
        let (may, others) = (true, false);
        let expected = [
            may, others, may, may, others, others, may, may, may, may, others, others, others,
            others,
        ];
        assert_eq!(days.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn limits_days_and_weeks_are_counted_by_the_clock() {
        let counted = |hours| {
            let wait = wait(hours);
            (wait.limits(), wait.weeks(), wait.turn(), wait.stage())
        };
        assert_eq!(counted(-1), (0, 0, None, 0));
        assert_eq!(counted(5), (0, 0, None, 0));
        assert_eq!(counted(6), (1, 0, None, 1));
        assert_eq!(counted(24 * 7), (28, 1, None, 8));
        assert_eq!(counted(24 * 28), (112, 4, Some(0), 29));
        assert_eq!(counted(24 * 56), (224, 8, Some(1), 57));
        assert_eq!(wait(0).stage(), 0);
    }

    #[test]
    fn a_day_is_four_limits_if_that_is_longer() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let days = |hours| {
            let since = now - SignedDuration::from_hours(hours);
            Wait::new(since, now, SignedDuration::from_hours(24)).days()
        };
        assert_eq!([95, 96, 7 * 96].map(days), [0, 1, 7]);
    }

    #[test]
    fn the_first_day_may_be_left_out() {
        assert!(wait(23).after_a_day().is_none());
        for (hours, limits) in [(24, 1), (29, 1), (30, 2)] {
            let wait = wait(hours).after_a_day().unwrap();
            assert_eq!(wait.limits(), limits, "{hours}");
        }
    }

    #[test]
    fn no_limit_and_no_time_is_too_short_or_too_long() {
        let wait = Wait::new(Timestamp::MIN, Timestamp::MAX, SignedDuration::ZERO);
        assert!(wait.limits() > 0 && wait.stage() > 0 && wait.turn().is_some());
        let wait = Wait::new(Timestamp::MIN, Timestamp::MAX, SignedDuration::MAX);
        assert!(wait.after_a_day().is_none());
        let _ = wait.may_have_all();
        let none = Wait::new(Timestamp::MAX, Timestamp::MIN, SignedDuration::MAX);
        assert_eq!(none.limits(), 0);
        assert!(none.after_a_day().is_none());
    }
}
