//! Pure: which instances are replaced when the template of a job without launcher has changed.

use ipu_api::ipujob::{self, StrategyType};

use super::facts::{Facts, Instance};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What a share is where the user gave none.
const DEFAULT_SHARE: Share = Share::Percent(25);

/// How instances are replaced; counted in instances, because those share a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All at once.
    Recreate,
    /// Some at a time.
    RollingUpdate {
        /// How many may exist beyond the wanted number.
        surge: Share,
        /// How many may be missing.
        unavailable: Share,
    },
}

/// A number of instances, or a share of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Count(u32),
    /// So many of a hundred.
    Percent(u32),
}

impl Strategy {
    /// The strategy that a spec asks for; what it leaves open is a rolling update by quarters.
    pub fn new(strategy: Option<&ipujob::Strategy>) -> Self {
        let kind = strategy.and_then(|strategy| strategy.type_);
        if kind == Some(StrategyType::Recreate) {
            return Self::Recreate;
        }
        let bounds = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let share = |given: Option<&IntOrString>| given.and_then(share).unwrap_or(DEFAULT_SHARE);
        Self::RollingUpdate {
            surge: share(bounds.and_then(|bounds| bounds.max_surge.as_ref())),
            unavailable: share(bounds.and_then(|bounds| bounds.max_unavailable.as_ref())),
        }
    }

    /// How many instances may exist beyond `instances` while some are replaced.
    pub fn surge(self, instances: u32) -> u32 {
        match self {
            Self::Recreate => 0,
            Self::RollingUpdate { surge, .. } => surge.of(instances, u64::div_ceil),
        }
    }

    /// How many of `instances` may be missing while some are replaced. One, where rounding leaves
    /// nothing of both bounds: a rollout would never end.
    fn unavailable(self, instances: u32) -> u32 {
        match self {
            Self::Recreate => instances,
            Self::RollingUpdate { unavailable, .. } => {
                let bound = unavailable.of(instances, |sum, hundred| sum / hundred);
                bound.max(u32::from(self.surge(instances) == 0))
            }
        }
    }

    /// The instances whose Pods are deleted now, to be made again from the new template: those that
    /// serve nobody at once, of the others as many as may be missing.
    pub fn replaced(self, facts: &Facts) -> Vec<&Instance> {
        let wanted = u32::try_from(facts.instances.len()).unwrap_or(u32::MAX);
        let outdated = || facts.instances.iter().filter(|found| found.is_outdated());
        let all = facts.instances.iter().chain(&facts.surge);
        let available = all.filter(|found| found.available()).count();
        let least = wanted.saturating_sub(self.unavailable(wanted));
        let spare = available.saturating_sub(usize::try_from(least).unwrap_or(usize::MAX));
        let useless = outdated().filter(|found| !found.available());
        let useful = outdated().filter(|found| found.available());
        useless.chain(useful.take(spare)).collect()
    }
}

impl Share {
    fn of(self, instances: u32, divide: fn(u64, u64) -> u64) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let share = divide(u64::from(percent) * u64::from(instances), 100);
                u32::try_from(share).unwrap_or(u32::MAX)
            }
        }
    }
}

/// Reads `2` or `25%`; the rules of admission refuse anything else.
fn share(given: &IntOrString) -> Option<Share> {
    match given {
        IntOrString::Int(count) => u32::try_from(*count).ok().map(Share::Count),
        IntOrString::String(text) => match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Share::Percent),
            None => text.parse().ok().map(Share::Count),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolling(surge: Share, unavailable: Share) -> Strategy {
        Strategy::RollingUpdate { surge, unavailable }
    }

    #[test]
    fn surge_is_rounded_up_and_unavailability_down() {
        let quarters = Strategy::new(None);
        let bounds = |instances| (quarters.surge(instances), quarters.unavailable(instances));
        assert_eq!(bounds(1), (1, 0));
        assert_eq!(bounds(4), (1, 1));
        assert_eq!(bounds(10), (3, 2));
        let counts = rolling(Share::Count(0), Share::Count(2));
        assert_eq!((counts.surge(3), counts.unavailable(3)), (0, 2));
    }

    #[test]
    fn a_rollout_that_may_neither_add_nor_miss_one_misses_one() {
        let stuck = rolling(Share::Percent(0), Share::Percent(10));
        assert_eq!((stuck.surge(3), stuck.unavailable(3)), (0, 1));
    }

    #[test]
    fn shares_are_read_as_kubernetes_writes_them() {
        let text = |text: &str| share(&IntOrString::String(text.to_owned()));
        assert_eq!(text("30%"), Some(Share::Percent(30)));
        assert_eq!(text("3"), Some(Share::Count(3)));
        assert_eq!(text("many"), None);
        assert_eq!(share(&IntOrString::Int(-1)), None);
        assert_eq!(share(&IntOrString::Int(2)), Some(Share::Count(2)));
    }
}
