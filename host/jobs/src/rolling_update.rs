//! Pure: the update strategy of a job without launcher: how many of its instances are replaced at a
//! time.

use ipu_api::ipujob::{self, StrategyType};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Default of both bounds.
const DEFAULT_BOUND: Bound = Bound::Percent(25);

/// The update strategy. It counts instances, because the Pods of an instance share a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Replaces all at once.
    Recreate,
    /// Replaces some at a time.
    RollingUpdate {
        /// Maximum number of additional instances.
        surge: Bound,
        /// Maximum number of unavailable instances.
        unavailable: Bound,
    },
}

/// A number of instances, or a percentage of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A number.
    Count(u32),
    /// A percentage.
    Percent(u32),
}

impl Strategy {
    /// Creates the strategy of a spec. The default is a rolling update of 25%.
    pub fn new(strategy: Option<&ipujob::Strategy>) -> Self {
        let kind = strategy.and_then(|strategy| strategy.type_);
        if kind == Some(StrategyType::Recreate) {
            return Self::Recreate;
        }
        let bounds = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let bound = |given: Option<&IntOrString>| given.and_then(bound).unwrap_or(DEFAULT_BOUND);
        Self::RollingUpdate {
            surge: bound(bounds.and_then(|bounds| bounds.max_surge.as_ref())),
            unavailable: bound(bounds.and_then(|bounds| bounds.max_unavailable.as_ref())),
        }
    }

    /// Returns the maximum number of additional instances.
    pub fn surge(self, instances: u32) -> u32 {
        match self {
            Self::Recreate => 0,
            Self::RollingUpdate { surge, .. } => surge.of(instances, u64::div_ceil),
        }
    }

    /// Returns the maximum number of unavailable instances. It is 1 if both bounds round to 0, or a
    /// rollout would never end.
    pub fn unavailable(self, instances: u32) -> u32 {
        match self {
            Self::Recreate => instances,
            Self::RollingUpdate { unavailable, .. } => {
                let bound = unavailable.of(instances, |sum, hundred| sum / hundred);
                bound.max(u32::from(self.surge(instances) == 0))
            }
        }
    }
}

impl Bound {
    fn of(self, instances: u32, divide: fn(u64, u64) -> u64) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let bound = divide(u64::from(percent) * u64::from(instances), 100);
                u32::try_from(bound).unwrap_or(u32::MAX)
            }
        }
    }
}

/// Parses `2` or `25%`. Admission refuses anything else.
fn bound(given: &IntOrString) -> Option<Bound> {
    match given {
        IntOrString::Int(count) => u32::try_from(*count).ok().map(Bound::Count),
        IntOrString::String(text) => match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Bound::Percent),
            None => text.parse().ok().map(Bound::Count),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolling(surge: Bound, unavailable: Bound) -> Strategy {
        Strategy::RollingUpdate { surge, unavailable }
    }

    #[test]
    fn surge_is_rounded_up_and_unavailability_down() {
        let quarters = Strategy::new(None);
        let bounds = |instances| (quarters.surge(instances), quarters.unavailable(instances));
        assert_eq!(bounds(1), (1, 0));
        assert_eq!(bounds(4), (1, 1));
        assert_eq!(bounds(10), (3, 2));
        let counts = rolling(Bound::Count(0), Bound::Count(2));
        assert_eq!((counts.surge(3), counts.unavailable(3)), (0, 2));
    }

    #[test]
    fn a_rollout_with_both_bounds_at_zero_replaces_one_instance() {
        let stuck = rolling(Bound::Percent(0), Bound::Percent(10));
        assert_eq!((stuck.surge(3), stuck.unavailable(3)), (0, 1));
    }

    #[test]
    fn bounds_are_parsed_as_in_kubernetes() {
        let text = |text: &str| bound(&IntOrString::String(text.to_owned()));
        assert_eq!(text("30%"), Some(Bound::Percent(30)));
        assert_eq!(text("3"), Some(Bound::Count(3)));
        assert_eq!(text("many"), None);
        assert_eq!(bound(&IntOrString::Int(-1)), None);
        assert_eq!(bound(&IntOrString::Int(2)), Some(Bound::Count(2)));
    }
}
