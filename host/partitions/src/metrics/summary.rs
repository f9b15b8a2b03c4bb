//! Pure: the summary of all partitions and namespaces.

use std::collections::BTreeMap;

use ipu_api::guest::namespace::Usage;
use ipu_api::ipupartition::PartitionPhase;
use ipu_ledger::state_unknown;
use ipu_runtime::metrics::OTHER;
use jiff::Timestamp;

use crate::store::Brief;

/// Most namespaces with values of their own.
const NAMESPACES_MAX: usize = 50;

/// The controller of a partition that has none.
const NONE: &str = "none";

/// A summary of all partitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of partitions, by phase and controller.
    pub counts: BTreeMap<(&'static str, String), usize>,
    /// Number of partitions with an unknown state, by reason.
    pub state_unknown: BTreeMap<&'static str, usize>,
    /// The longest waiting time, in seconds.
    pub longest_wait: f64,
}

impl Summary {
    /// Summarizes these partitions, each with the time since when it waits.
    pub fn of<'a>(
        partitions: impl Iterator<Item = (&'a Brief, Option<Timestamp>)>,
        now: Timestamp,
    ) -> Self {
        let mut summary = Self::default();
        // These phases have a value even without partitions.
        for phase in [PartitionPhase::Pending, PartitionPhase::Error] {
            summary.counts.insert((phase.into(), NONE.to_owned()), 0);
        }
        for reason in state_unknown::REASONS {
            summary.state_unknown.insert(reason, 0);
        }
        for (partition, waits_since) in partitions {
            if let Some(reason) = partition.state_unknown {
                *summary.state_unknown.entry(reason).or_default() += 1;
            }
            let phase = partition.phase.map_or("Unreadable", Into::into);
            let controller = partition.controller.as_deref().unwrap_or(NONE);
            let count = summary.counts.entry((phase, controller.to_owned()));
            *count.or_default() += 1;
            if let Some(since) = waits_since {
                let waited = now.duration_since(since).as_secs_f64();
                summary.longest_wait = summary.longest_wait.max(waited);
            }
        }
        summary
    }
}

/// The namespaces that have or request most IPUs, and all others as one.
pub fn most(mut usages: Vec<(String, Usage)>) -> Vec<(String, Usage)> {
    let most = |usage: &Usage| u64::from(usage.ipus) + u64::from(usage.waiting_ipus);
    usages.sort_by(|(one, has), (other, hers)| most(hers).cmp(&most(has)).then(one.cmp(other)));
    let rest = usages.split_off(usages.len().min(NAMESPACES_MAX));
    if !rest.is_empty() {
        let sum = |of: fn(&Usage) -> u32| {
            let each = rest.iter().map(|(_, usage)| of(usage));
            each.fold(0, u32::saturating_add)
        };
        usages.push((
            OTHER.to_owned(),
            Usage {
                ipus: sum(|usage| usage.ipus),
                partitions: sum(|usage| usage.partitions),
                waiting_ipus: sum(|usage| usage.waiting_ipus),
                waiting_partitions: sum(|usage| usage.waiting_partitions),
            },
        ));
    }
    usages
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::store::Cache;

    fn partition(name: &str, status: &Value) -> Value {
        json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T12:00:00Z"},
            "spec": {
                "owner": {"apiVersion": "v1", "kind": "K", "namespace": "n", "name": "o", "uid": "u"},
                "slot": 0, "ipus": 4, "gcds": 1,
            },
            "status": status,
        })
    }

    #[test]
    fn partitions_are_counted_by_phase_and_controller() {
        let ready = |name| {
            let status = json!({
                "phase": "Ready", "partitionId": "p",
                "controller": {
                    "name": "pod1:8090", "host": "pod1", "port": 8090,
                    "labelKey": "k", "labelValue": "v",
                },
            });
            partition(name, &status)
        };
        let waiting = partition("c", &Value::Null);
        let unreadable = json!({"metadata": {"name": "d"}, "spec": {"ipus": "four"}});
        let mut cache = Cache::default();
        for object in [ready("a"), ready("b"), waiting, unreadable] {
            let object = serde_json::from_value(object).unwrap();
            cache.apply_event(Event::Apply(object), Timestamp::UNIX_EPOCH);
        }
        let now = "2026-01-01T12:01:30Z".parse().unwrap();
        let summary = Summary::of(cache.briefs(), now);
        let count = |phase, controller: &str| summary.counts.get(&(phase, controller.to_owned()));
        assert_eq!(count("Ready", "pod1:8090"), Some(&2));
        assert_eq!(count("Pending", NONE), Some(&1));
        assert_eq!(count("Error", NONE), Some(&0));
        assert_eq!(count("Unreadable", NONE), Some(&1));
        assert!((summary.longest_wait - 90.0).abs() < 0.001, "{summary:?}");
    }

    #[test]
    fn partitions_with_an_unknown_state_are_counted_by_its_reason() {
        let marked = |name, reason: &str, is_true: &str| {
            let status = json!({
                "phase": "Ready",
                "conditions": [{
                    "type": state_unknown::STATE_UNKNOWN, "status": is_true, "reason": reason,
                    "message": "why", "lastTransitionTime": "2026-01-01T12:00:00Z",
                }],
            });
            partition(name, &status)
        };
        let mut cache = Cache::default();
        for object in [
            marked("a", state_unknown::CONTROLLER_NOT_LISTED, "True"),
            marked("b", state_unknown::ACCESS_DENIED, "False"),
            partition("c", &json!({"phase": "Ready"})),
        ] {
            let object = serde_json::from_value(object).unwrap();
            cache.apply_event(Event::Apply(object), Timestamp::UNIX_EPOCH);
        }
        let summary = Summary::of(cache.briefs(), Timestamp::UNIX_EPOCH);
        let each = state_unknown::REASONS.map(|reason| summary.state_unknown.get(reason).copied());
        // Reasons without a partition have a value too, so that an alert ends.
        let only_left =
            |reason: &str| Some(usize::from(reason == state_unknown::CONTROLLER_NOT_LISTED));
        assert_eq!(each, state_unknown::REASONS.map(only_left));
        assert_eq!(summary.state_unknown.len(), each.len());
    }

    #[test]
    fn namespaces_beyond_the_largest_are_one() {
        let of = |ipus| Usage {
            ipus,
            ..Usage::default()
        };
        let all: Vec<_> = (0..60)
            .map(|number| (format!("n{number}"), of(number)))
            .collect();
        let limited = most(all.clone());
        assert_eq!(limited.len(), NAMESPACES_MAX + 1);
        assert_eq!(limited[0], ("n59".to_owned(), of(59)));
        assert_eq!(limited[NAMESPACES_MAX], (OTHER.to_owned(), of(45)));
        assert_eq!(most(all[..2].to_vec()).len(), 2);
    }
}
