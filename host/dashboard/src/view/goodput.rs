//! Pure: where the IPU-seconds of the last day went, by namespace.

use std::collections::BTreeMap;

use ipu_api::accounting::{AllocatedSeconds, Period, Unallocated};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{Listed, Page};
use crate::cluster::{Cluster, Kind};

/// A day. An hour counts if it began within it.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Use of the IPU-seconds of the last day.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Goodput {
    /// Start of the first hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Until when the slowest V-IPU controller is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// IPU-seconds of all IPUs.
    pub total_seconds: f64,
    /// IPU-seconds in partitions, of all namespaces.
    pub allocated: AllocatedSeconds,
    /// IPU-seconds in no partition of the operator.
    pub unallocated: Unallocated,
    /// Those with the most IPU-seconds first, then by name.
    #[serde(flatten)]
    pub listed: Listed<NamespaceRow>,
}

/// The IPU-seconds of one namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceRow {
    /// Its name. Empty: namespaces that are not counted one by one.
    pub namespace: String,
    /// Its IPU-seconds by state.
    #[serde(flatten)]
    pub seconds: AllocatedSeconds,
    /// Their sum.
    pub total_seconds: f64,
    /// Share of `running` in it, from 0 to 1.
    pub goodput: f64,
}

/// The last day by namespace. `namespace`: this one alone.
pub fn goodput(cluster: &Cluster, namespace: Option<&str>, page: Page, now: Timestamp) -> Goodput {
    let mut by_namespace: BTreeMap<&str, AllocatedSeconds> = BTreeMap::new();
    let (mut allocated, mut unallocated) = (AllocatedSeconds::default(), Unallocated::default());
    let mut from: Option<Timestamp> = None;
    for hour in hours(cluster, now) {
        from = Some(from.map_or(hour.start.0, |first| first.min(hour.start.0)));
        unallocated.add(&hour.unallocated);
        for one in &hour.namespaces {
            allocated.add(&one.seconds);
            by_namespace
                .entry(&one.namespace)
                .or_default()
                .add(&one.seconds);
        }
    }
    let is_shown = |name: &str| namespace.is_none_or(|namespace| name == namespace);
    let mut rows: Vec<_> = by_namespace.into_iter().collect();
    rows.retain(|(name, _)| is_shown(name));
    rows.sort_by(|one, other| other.1.total().total_cmp(&one.1.total()));
    let controllers = cluster.controllers.values();
    let until =
        controllers.filter_map(|controller| Some(cluster.accountings.get(&controller.name)?.until));
    Goodput {
        from,
        until: until.min(),
        total_seconds: allocated.total() + unallocated.total(),
        allocated,
        unallocated,
        listed: page.of(&rows, not_shown(cluster, now), |(name, seconds)| {
            row(name, *seconds)
        }),
    }
}

/// The hours of the last day, of all V-IPU controllers.
pub(super) fn hours(cluster: &Cluster, now: Timestamp) -> impl Iterator<Item = &Period> {
    let all = cluster
        .accountings
        .values()
        .flat_map(|record| &record.hours);
    all.filter(move |hour| hour.start.0 <= now && now.duration_since(hour.start.0) < DAY)
}

/// Returns the gaps of the accounting.
pub(super) fn not_shown(cluster: &Cluster, now: Timestamp) -> Vec<String> {
    let mut reasons = cluster.not_shown(&[Kind::Controllers, Kind::Accountings], now);
    if !cluster.accountings.is_known() {
        return reasons;
    }
    let controllers = cluster.controllers.values();
    let without = controllers
        .filter(|controller| cluster.accountings.get(&controller.name).is_none())
        .count();
    if without > 0 {
        reasons.push(format!(
            "the IPU-hours of {without} V-IPU controllers: the operator has not counted them yet"
        ));
    }
    reasons
}

fn row(name: &str, seconds: AllocatedSeconds) -> NamespaceRow {
    let total = seconds.total();
    NamespaceRow {
        namespace: crate::shown::shown(name),
        seconds,
        total_seconds: total,
        goodput: if total > 0.0 {
            seconds.running / total
        } else {
            0.0
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::fixture::{cluster, controller, now, with_accountings};

    fn hour(start: &str, free: f64, namespaces: &Value) -> Value {
        json!({
            "start": start,
            "unallocated": {
                "free": free, "stranded": 0.0, "unhealthy": 0.0, "others": 0.0, "unknown": 0.0,
            },
            "namespaces": namespaces,
        })
    }

    fn of(namespace: &str, running: f64, idle: f64) -> Value {
        json!({
            "namespace": namespace, "forming": 0.0, "waitingPods": 0.0, "running": running,
            "resetting": 0.0, "idleAllocated": idle, "releasing": 0.0,
        })
    }

    fn counted(name: &str, hours: &[Value]) -> Value {
        json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUAccounting",
            "metadata": {"name": format!("{name}-8090")},
            "spec": {
                "address": format!("{name}:8090"), "ipus": 16,
                "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T12:29:00Z",
                "total": hour("2026-01-01T00:00:00Z", 0.0, &json!([])),
                "hours": hours,
            },
        })
    }

    /// Two V-IPU controllers with hours, the oldest of which is over a day old, and one without.
    pub(crate) fn known() -> Cluster {
        let first = [
            hour(
                "2026-01-01T12:00:00Z",
                1_000.0,
                &json!([of("a", 1_000.0, 0.0)]),
            ),
            hour("2026-01-01T13:00:00Z", 50.0, &json!([of("a", 10.0, 10.0)])),
            hour(
                "2026-01-02T12:00:00Z",
                30.0,
                &json!([of("b", 60.0, 0.0), of("a", 20.0, 0.0)]),
            ),
        ];
        let second = [hour(
            "2026-01-02T12:00:00Z",
            5.0,
            &json!([of("a", 0.0, 10.0)]),
        )];
        let controllers = ["pod1", "pod2", "pod3"].map(|name| controller(name, 16, 0, 16));
        let mut known = cluster(controllers.to_vec(), Vec::new(), Vec::new());
        let records = vec![counted("pod1", &first), counted("pod2", &second)];
        with_accountings(&mut known, records);
        known
    }

    const ALL: Page = Page {
        offset: 0,
        limit: 50,
    };

    #[test]
    fn the_last_day_is_summed_up_by_namespace() {
        let result = goodput(&known(), None, ALL, now());
        assert_eq!(result.from, Some("2026-01-01T13:00:00Z".parse().unwrap()));
        assert_eq!(result.until, Some("2026-01-02T12:29:00Z".parse().unwrap()));
        assert_eq!(
            (result.unallocated.free, result.total_seconds),
            (85.0, 195.0)
        );
        let rows = result.listed.rows.iter();
        let rows: Vec<_> = rows
            .map(|one| (one.namespace.as_str(), one.total_seconds, one.goodput))
            .collect();
        assert_eq!(rows, [("b", 60.0, 1.0), ("a", 50.0, 0.6)]);
        let lacks = "the IPU-hours of 1 V-IPU controllers";
        assert!(result.listed.not_shown[0].starts_with(lacks));
    }

    #[test]
    fn a_namespace_is_shown_alone() {
        let result = goodput(&known(), Some("b"), ALL, now());
        assert_eq!(result.listed.total, 1);
        assert_eq!(result.listed.rows[0].namespace, "b");
        let json = serde_json::to_value(&result.listed.rows[0]).unwrap();
        assert_eq!(json["running"], 60.0);
    }
}
