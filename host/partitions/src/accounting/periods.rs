//! Pure: IPU-seconds of periods of the same length, which begin at full hours or days (UTC).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::accounting::{AllocatedSeconds, NamespaceUse, Period, Unallocated};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::ipu_states::{ALLOCATED, IpuState, IpuStates};

/// Namespaces of a period with values of their own. Later ones are counted under the empty name.
const NAMESPACES_MAX: usize = 32;

/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;

/// IPU-milliseconds by state. Whole numbers, so that no sum loses anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Of IPUs in no partition of the operator, by state in the order of [`IpuState`].
    unallocated: [u64; IpuState::ALL.len() - ALLOCATED],
    /// Of IPUs in partitions of the operator, by namespace of the owner, and by state in the same
    /// order.
    namespaces: BTreeMap<Arc<str>, [u64; ALLOCATED]>,
}

/// Periods of one length, of which the last ones are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Periods {
    /// Milliseconds of a period.
    length: i64,
    /// Number of stored periods.
    most: i64,
    /// By the millisecond in which a period begins.
    sums: BTreeMap<i64, Sums>,
}

impl Sums {
    /// Adds IPUs that were in these states for so many milliseconds.
    pub(super) fn add(&mut self, states: &IpuStates, milliseconds: i64) {
        let milliseconds = u64::try_from(milliseconds).unwrap_or(0);
        for one in states.groups() {
            let sum = self.sum(one.state, &one.namespace);
            *sum = sum.saturating_add(u64::from(one.ipus).saturating_mul(milliseconds));
        }
    }

    /// The number to which this state of IPUs of a namespace counts.
    fn sum(&mut self, state: IpuState, namespace: &Arc<str>) -> &mut u64 {
        let index = state as usize;
        if index >= ALLOCATED {
            return &mut self.unallocated[index - ALLOCATED];
        }
        let named = self.namespaces.keys().filter(|name| !name.is_empty());
        let is_full = named.count() >= NAMESPACES_MAX;
        let name = if is_full && !self.namespaces.contains_key(namespace) {
            Arc::default()
        } else {
            Arc::clone(namespace)
        };
        &mut self.namespaces.entry(name).or_default()[index]
    }

    /// IPU-seconds of each state.
    pub(super) fn seconds(&self) -> [(IpuState, f64); IpuState::ALL.len()] {
        std::array::from_fn(|index| {
            let sum = if index >= ALLOCATED {
                self.unallocated[index - ALLOCATED]
            } else {
                let rows = self.namespaces.values();
                rows.fold(0, |sum: u64, row| sum.saturating_add(row[index]))
            };
            (IpuState::ALL[index], seconds(sum))
        })
    }

    /// The sums of a period that begins at this millisecond, as a record has them.
    pub(super) fn period(&self, start: i64) -> Period {
        let of = |row: &[u64; ALLOCATED], state: IpuState| seconds(row[state as usize]);
        let unallocated = |state: IpuState| seconds(self.unallocated[state as usize - ALLOCATED]);
        let mut namespaces: Vec<NamespaceUse> = self
            .namespaces
            .iter()
            .map(|(name, row)| NamespaceUse {
                namespace: String::from(&**name),
                seconds: AllocatedSeconds {
                    forming: of(row, IpuState::Forming),
                    waiting_pods: of(row, IpuState::WaitingPods),
                    running: of(row, IpuState::Running),
                    resetting: of(row, IpuState::Resetting),
                    idle_allocated: of(row, IpuState::IdleAllocated),
                    releasing: of(row, IpuState::Releasing),
                },
            })
            .collect();
        // Equal ones stay in the order of their names.
        let total = |one: &NamespaceUse| one.seconds.total();
        namespaces.sort_by(|one, other| total(other).total_cmp(&total(one)));
        Period {
            start: time(start),
            unallocated: Unallocated {
                free: unallocated(IpuState::Free),
                stranded: unallocated(IpuState::Stranded),
                unhealthy: unallocated(IpuState::Unhealthy),
                others: unallocated(IpuState::Others),
                unknown: unallocated(IpuState::Unknown),
            },
            namespaces,
        }
    }

    /// The sums of a record.
    pub(super) fn of_period(period: &Period) -> Self {
        let mut sums = Self::default();
        let unallocated = &period.unallocated;
        for (state, seconds) in [
            (IpuState::Free, unallocated.free),
            (IpuState::Stranded, unallocated.stranded),
            (IpuState::Unhealthy, unallocated.unhealthy),
            (IpuState::Others, unallocated.others),
            (IpuState::Unknown, unallocated.unknown),
        ] {
            *sums.sum(state, &Arc::default()) = milliseconds(seconds);
        }
        for NamespaceUse { namespace, seconds } in &period.namespaces {
            let namespace: Arc<str> = namespace.as_str().into();
            for (state, seconds) in [
                (IpuState::Forming, seconds.forming),
                (IpuState::WaitingPods, seconds.waiting_pods),
                (IpuState::Running, seconds.running),
                (IpuState::Resetting, seconds.resetting),
                (IpuState::IdleAllocated, seconds.idle_allocated),
                (IpuState::Releasing, seconds.releasing),
            ] {
                let sum = sums.sum(state, &namespace);
                *sum = sum.saturating_add(milliseconds(seconds));
            }
        }
        sums
    }
}

impl Periods {
    /// The last 25 hours, so that they contain a whole day at any time.
    pub(super) fn hours() -> Self {
        Self {
            length: HOUR,
            most: 25,
            sums: BTreeMap::new(),
        }
    }

    /// The last 32 days, so that they contain a whole month at any time.
    pub(super) fn days() -> Self {
        Self {
            length: 24 * HOUR,
            most: 32,
            sums: BTreeMap::new(),
        }
    }

    /// The periods of a record, up to this millisecond.
    pub(super) fn resumed(mut self, periods: &[Period], until: i64) -> Self {
        for period in periods {
            let start = period.start.0.as_millisecond();
            if start <= until && self.start(start) == start {
                self.sums.insert(start, Sums::of_period(period));
            }
        }
        self.prune(self.start(until));
        self
    }

    /// Adds IPUs that were in these states from one millisecond until another one. The time is cut
    /// at the boundaries of periods.
    pub(super) fn add(&mut self, from: i64, until: i64, states: &IpuStates) {
        let last = self.start(until - 1);
        self.prune(last);
        let mut start = self.start(from).max(self.oldest(last));
        while start <= last {
            let end = start + self.length;
            let milliseconds = until.min(end) - from.max(start);
            let sums = self.sums.entry(start).or_default();
            sums.add(states, milliseconds);
            start = end;
        }
    }

    /// The periods as a record has them, oldest first.
    pub(super) fn reported(&self) -> Vec<Period> {
        let each = self.sums.iter();
        each.map(|(start, sums)| sums.period(*start)).collect()
    }

    /// The beginning of the period that contains this millisecond.
    fn start(&self, millisecond: i64) -> i64 {
        millisecond - millisecond.rem_euclid(self.length)
    }

    /// The beginning of the oldest stored period, if this one is the last.
    fn oldest(&self, last: i64) -> i64 {
        last - (self.most - 1) * self.length
    }

    fn prune(&mut self, last: i64) {
        let oldest = self.oldest(last);
        while let Some(first) = self.sums.first_entry()
            && *first.key() < oldest
        {
            first.remove();
        }
    }
}

/// The time of a millisecond.
pub(super) fn time(millisecond: i64) -> Time {
    Time(Timestamp::from_millisecond(millisecond).unwrap_or(Timestamp::MAX))
}

fn seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}

/// Rounds, because most fractions have no exact binary form. Negative numbers and those beyond all
/// times count as 0.
fn milliseconds(seconds: f64) -> u64 {
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let rounded = duration.saturating_add(Duration::from_micros(500));
    u64::try_from(rounded.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::ipu_states::{ControllerUse, IpuGroup};
    use super::*;

    fn free(ipus: u32) -> IpuStates {
        IpuStates::all(IpuState::Free, ipus)
    }

    fn running(namespace: &str) -> IpuStates {
        let partition = IpuGroup {
            namespace: namespace.into(),
            ipus: 4,
            state: IpuState::Running,
        };
        let observed = ControllerUse {
            total: Some(4),
            partitions: vec![partition],
            ..ControllerUse::default()
        };
        IpuStates::of(&observed, 4)
    }

    fn millisecond(time: &str) -> i64 {
        time.parse::<Timestamp>().unwrap().as_millisecond()
    }

    /// The beginnings of periods, with the milliseconds for which IPUs were free.
    fn shown(periods: &Periods) -> Vec<(String, u64)> {
        let reported = periods.reported().into_iter();
        reported
            .map(|one| (one.start.0.to_string(), milliseconds(one.unallocated.free)))
            .collect()
    }

    #[test]
    fn time_is_cut_at_the_boundaries_of_hours_and_days() {
        let (from, until) = ("2026-01-01T22:59:59.500Z", "2026-01-02T01:00:00Z");
        let (from, until) = (millisecond(from), millisecond(until));
        let mut hours = Periods::hours();
        hours.add(from, until, &free(2));
        let expected = [
            ("2026-01-01T22:00:00Z", 1_000),
            ("2026-01-01T23:00:00Z", 7_200_000),
            ("2026-01-02T00:00:00Z", 7_200_000),
        ];
        assert_eq!(
            shown(&hours),
            expected.map(|(start, free)| (start.to_owned(), free))
        );
        let mut days = Periods::days();
        days.add(from, until, &free(2));
        let sums: Vec<u64> = shown(&days).into_iter().map(|(_, free)| free).collect();
        assert_eq!(sums, [7_201_000, 7_200_000]);
        assert_eq!(
            Periods::days().resumed(&days.reported(), until),
            days,
            "a status contains all of it"
        );
    }

    #[test]
    fn only_the_last_periods_are_stored() {
        let day = 24 * HOUR;
        let mut hours = Periods::hours();
        hours.add(0, 400 * day, &free(1));
        let starts: Vec<i64> = hours.sums.keys().copied().collect();
        assert_eq!((starts.len(), starts[24]), (25, 400 * day - HOUR));
        hours.add(401 * day, 401 * day + 1, &free(1));
        assert_eq!(hours.sums.len(), 1);
        let mut of_status = Periods::hours().resumed(&hours.reported(), 300 * day);
        assert_eq!(of_status.sums.len(), 0, "they are of the future");
        of_status = Periods::hours().resumed(&hours.reported(), 402 * day);
        assert_eq!(of_status.sums.len(), 1);
    }

    #[test]
    fn namespaces_beyond_the_limit_are_counted_together() {
        let mut sums = Sums::default();
        for number in 0..40 {
            sums.add(&running(&format!("n{number}")), 1_000);
        }
        sums.add(&running("n0"), 1_000);
        let period = sums.period(0);
        let names: Vec<(&str, u64)> = period
            .namespaces
            .iter()
            .map(|one| (one.namespace.as_str(), milliseconds(one.seconds.running)))
            .collect();
        assert_eq!(names.len(), NAMESPACES_MAX + 1);
        assert_eq!(names[..2], [("", 32_000), ("n0", 8_000)]);
        assert_eq!(Sums::of_period(&period), sums);
        assert_eq!(sums.seconds()[0], (IpuState::Running, 164.0));
    }

    #[test]
    fn a_status_contains_whole_milliseconds() {
        for number in [0, 1, 234, 1_001, 86_399_999, 31_536_000_000_123] {
            assert_eq!(milliseconds(seconds(number)), number);
        }
        for odd in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(milliseconds(odd), 0, "{odd}");
        }
    }
}
