//! Pure: the last day, hour by hour.

use std::collections::BTreeMap;

use ipu_api::accounting::{AllocatedSeconds, Unallocated};
use jiff::Timestamp;
use serde::Serialize;

use super::goodput::{hours, not_shown};
use crate::cluster::Cluster;

/// The last day.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// The hours that are counted, oldest first.
    pub hours: Vec<Hour>,
    /// Missing parts of the view, in sentences.
    pub not_shown: Vec<String>,
}

/// IPU-seconds of an hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hour {
    /// Start of the period.
    pub start: Timestamp,
    /// IPU-seconds in partitions.
    pub allocated: AllocatedSeconds,
    /// IPU-seconds in no partition of the operator. Missing: one namespace is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unallocated: Option<Unallocated>,
}

/// The last day of all V-IPU controllers. `namespace`: the partitions of its owners alone.
pub fn history(cluster: &Cluster, namespace: Option<&str>, now: Timestamp) -> History {
    let mut sums: BTreeMap<Timestamp, Hour> = BTreeMap::new();
    for hour in hours(cluster, now) {
        let start = hour.start.0;
        let sum = sums.entry(start).or_default();
        sum.start = start;
        let shown = hour.namespaces.iter();
        for one in shown.filter(|one| namespace.is_none_or(|wanted| one.namespace == wanted)) {
            sum.allocated.add(&one.seconds);
        }
        if namespace.is_none() {
            let unallocated = sum.unallocated.get_or_insert_default();
            unallocated.add(&hour.unallocated);
        }
    }
    History {
        hours: sums.into_values().collect(),
        not_shown: not_shown(cluster, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture::now;
    use crate::view::goodput::tests::known;

    #[test]
    fn hours_of_all_controllers_are_summed_up() {
        let short = |namespace| {
            let history = history(&known(), namespace, now());
            let hour = |one: &Hour| {
                let free = one.unallocated.map(|seconds| seconds.free);
                (one.start.to_string(), one.allocated.total(), free)
            };
            history.hours.iter().map(hour).collect::<Vec<_>>()
        };
        let (first, last) = ("2026-01-01T13:00:00Z", "2026-01-02T12:00:00Z");
        let expected = [(first, 20.0, Some(50.0)), (last, 90.0, Some(35.0))];
        let expected = expected.map(|(start, seconds, free)| (start.to_owned(), seconds, free));
        assert_eq!(short(None), expected);
        let expected = [(first, 0.0, None), (last, 60.0, None)];
        let expected = expected.map(|(start, seconds, free)| (start.to_owned(), seconds, free));
        assert_eq!(short(Some("b")), expected);
    }
}
