//! Pure: the partitions that remain on a drained V-IPU controller, and the changes since the last
//! output.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{IPUPartition, IPUPartitionStatus};
use ipu_api::vipu_controller::VIPUController;

use crate::condition::shown;
use crate::controllers::{DRAINED, condition};
use crate::top::held;

/// Maximum number of lines for one output: a controller may have hundreds of partitions.
const LINES: usize = 20;

/// Condition of an IPUPartition while its owner must move.
const DRAINING: &str = "Draining";

/// A partition on the V-IPU controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Its owner and IPUs.
    owner: String,
    /// Its phase, and the progress of its removal.
    state: String,
}

/// The partitions of a V-IPU controller, by the names of their objects.
pub type RemainingPartitions = BTreeMap<String, Remaining>;

/// The partitions that a V-IPU controller certainly or possibly has.
pub fn remaining<'a>(
    partitions: impl Iterator<Item = &'a IPUPartition>,
    address: &str,
) -> RemainingPartitions {
    let on_it = partitions.filter(|one| held(one).any(|found| shown(&found.name) == address));
    let named = on_it.map(|one| {
        let name = one.metadata.name.clone().unwrap_or_default();
        (name, state(one))
    });
    named.collect()
}

fn state(partition: &IPUPartition) -> Remaining {
    let owner = &partition.spec.owner;
    let (namespace, name) = (shown(&owner.namespace), shown(&owner.name));
    let kind = shown(&owner.kind);
    let empty = IPUPartitionStatus::default();
    let status = partition.status.as_ref().unwrap_or(&empty);
    let mut conditions = status.conditions.iter();
    let leaves = conditions.any(|one| one.type_ == DRAINING && one.status == "True");
    let mut state = format!("{:?}", status.phase);
    if partition.spec.options.pinned {
        let how = match owner.kind.as_str() {
            "IPUJob" => format!("kubectl delete ipujob {name} --namespace {namespace}"),
            "Pod" => format!("kubectl delete pod {name} --namespace {namespace}"),
            _ => format!("delete the {kind}"),
        };
        state.push_str(", pinned: it stays until its owner ends; to end it now: ");
        state.push_str(&how);
    } else if leaves {
        state.push_str(", its owner is asked to move");
    }
    Remaining {
        owner: format!("{namespace}/{name} ({kind}, {} IPUs)", partition.spec.ipus),
        state,
    }
}

/// A line for each partition that is new, changed or gone.
pub fn changes(
    address: &str,
    before: &RemainingPartitions,
    after: &RemainingPartitions,
) -> Vec<String> {
    let changed = after
        .iter()
        .filter(|(name, one)| before.get(*name) != Some(*one));
    let changed = changed.map(|(_, one)| format!("{address}: {}: {}", one.owner, one.state));
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let left = after.len();
    let gone = gone.map(|(_, one)| format!("{address}: {}: gone, {left} left", one.owner));
    let mut lines: Vec<_> = gone.chain(changed).collect();
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        lines.truncate(LINES);
        lines.push(format!("{address}: and {more} more"));
    }
    lines
}

/// Whether the drain is complete, as the operator reports for this generation of the spec. A
/// condition of an earlier drain, or one without a generation, proves nothing.
pub fn is_drained(controller: &VIPUController) -> bool {
    let generation = controller.metadata.generation;
    condition(controller, DRAINED).is_some_and(|drained| {
        let observed = drained.observed_generation.zip(generation);
        let is_current = observed.is_some_and(|(observed, current)| observed >= current);
        is_current && drained.status == "True"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn partition(name: &str, kind: &str, host: &str, pinned: bool, phase: &str) -> IPUPartition {
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUPartition",
            "metadata": {"name": format!("team-a.{name}-0")},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": kind, "namespace": "team-a", "name": name, "uid": name,
                },
                "slot": 0, "ipus": 4, "gcds": 1, "options": {"pinned": pinned},
            },
            "status": {
                "phase": phase,
                "controller": {
                    "name": format!("{host}:8090"), "host": host, "port": 8090, "labelKey": "ipunode",
                    "labelValue": host,
                },
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn each_change_has_one_line_and_pinned_partitions_say_what_to_do() {
        let train = |phase: &str| partition("train", "IPUJob", "pod1", false, phase);
        let old = [
            train("Ready"),
            partition("notebook", "Pod", "pod1", true, "Ready"),
            partition("other", "IPUJob", "pod2", false, "Ready"),
        ];
        let first = remaining(old.iter(), "pod1:8090");
        let lines = changes("pod1:8090", &RemainingPartitions::new(), &first);
        let pinned = "pod1:8090: team-a/notebook (Pod, 4 IPUs): Ready, pinned: it stays until its owner ends; to end it \
                      now: kubectl delete pod notebook --namespace team-a";
        let ready = "pod1:8090: team-a/train (IPUJob, 4 IPUs): Ready";
        assert_eq!(lines, [pinned, ready]);
        assert_eq!(changes("pod1:8090", &first, &first), Vec::<String>::new());

        let next = remaining([train("Releasing")].iter(), "pod1:8090");
        let lines = changes("pod1:8090", &first, &next);
        let gone = "pod1:8090: team-a/notebook (Pod, 4 IPUs): gone, 1 left";
        let releasing = "pod1:8090: team-a/train (IPUJob, 4 IPUs): Releasing";
        assert_eq!(lines, [gone, releasing]);
    }

    #[test]
    fn many_partitions_are_counted_and_not_listed() {
        let all: Vec<_> = (10..50)
            .map(|number| partition(&format!("job-{number}"), "IPUJob", "pod1", false, "Ready"))
            .collect();
        let found = remaining(all.iter(), "pod1:8090");
        let lines = changes("pod1:8090", &RemainingPartitions::new(), &found);
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[20], "pod1:8090: and 20 more");
    }

    /// A controller that is drained in generation 3, with the state of the condition and the
    /// generation that it names.
    fn controller(drained: Option<(&str, Option<i64>)>) -> VIPUController {
        let drained = drained.map(|(status, observed)| {
            json!({
                "type": "Drained", "status": status, "reason": "Drained", "message": "",
                "observedGeneration": observed, "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        });
        let conditions: Vec<Value> = drained.into_iter().collect();
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "VIPUController",
            "metadata": {"name": "pod1-8090", "generation": 3},
            "spec": {"cordoned": true, "draining": true},
            "status": {
                "address": "pod1:8090", "summary": "Ready,Draining", "partitions": 0,
                "conditions": conditions,
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_drain_is_over_when_the_operator_says_so_of_this_spec() {
        for (drained, expected) in [
            (Some(("True", Some(3))), true),
            (Some(("True", Some(2))), false),
            (Some(("True", None)), false),
            (Some(("False", Some(3))), false),
            // The operator has not seen the drain yet. Its count of partitions may be minutes old.
            (None, false),
        ] {
            let found = is_drained(&controller(drained));
            assert_eq!(found, expected, "{drained:?}");
        }
        let mut nameless = controller(Some(("True", Some(3))));
        nameless.metadata.generation = None;
        assert!(!is_drained(&nameless));
    }
}
