//! Limits the rate of requests for each key, such as an address or a user.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};

/// Number of keys at which idle keys are dropped.
const KEYS_MAX: usize = 4_096;

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second.
    pub per_second: NonZeroU32,
    /// Burst after an idle time.
    pub burst: NonZeroU32,
}

impl Rate {
    /// Creates a rate. Neither number is zero.
    pub const fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        Self { per_second, burst }
    }
}

/// A number of a rate.
///
/// # Panics
///
/// If the number is 0: a rate is a constant.
pub const fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a rate is not zero")
}

/// Limits the rate of each key.
pub struct RateLimiter<K: Clone + Eq + Hash>(DefaultKeyedRateLimiter<K>);

impl<K: Clone + Eq + Hash> RateLimiter<K> {
    /// A limiter without requests so far.
    pub fn new(rate: Rate) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        Self(governor::RateLimiter::keyed(quota))
    }

    /// One request per hour. Every machine is fast enough to exceed it.
    #[cfg(any(test, feature = "fixtures"))]
    #[expect(clippy::missing_panics_doc, reason = "an hour is a period")]
    pub fn of_an_hour() -> Self {
        let hour = Quota::with_period(Duration::from_hours(1));
        let hour = hour.expect("an hour is longer than nothing");
        Self(governor::RateLimiter::keyed(hour))
    }

    /// Counts a request, or returns the time until one is allowed.
    pub fn check(&self, key: &K) -> Result<(), Duration> {
        if self.0.len() > KEYS_MAX {
            self.0.retain_recent();
        }
        let checked = self.0.check_key(key);
        checked.map_err(|until| until.wait_time_from(DefaultClock::default().now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_too_fast_waits_and_others_do_not() {
        let limiter = RateLimiter::new(Rate::new(number(50), number(100)));
        let good = (0..1_000).filter(|_| limiter.check(&1).is_ok()).count();
        assert!((100..1_000).contains(&good), "{good}");
        assert_eq!(limiter.check(&2), Ok(()));
        let hour = RateLimiter::of_an_hour();
        assert_eq!(hour.check(&1), Ok(()));
        assert!(hour.check(&1).unwrap_err() > Duration::from_mins(30));
    }
}
