//! Pure: the request to a placement guest for an IPUPartition, and the result of its answer.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::guest::namespace::{NamespaceContext, Usage};
use ipu_api::guest::placement::{
    ControllerView, Decision, Gang, Options, Owner, PartitionRequest, PlaceAttempt, PlaceOutcome,
    Placed, PlacementContext, Progress, SizeCount,
};
use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, DecidedBy, IPUPartition, IPUPartitionSpec,
    PartitionOptions, WaitingReason,
};
use ipu_api::ipupolicy::BUILT_IN;
use ipu_api::vipu_controller::{CordonState, CordonStates};
use ipu_api::{owner_metadata, partition_conditions};
use ipu_text::sanitize;
use jiff::Timestamp;

use crate::decision::PlacementDecision;
use crate::refusals::{self, StandingRefusals};

/// Longest reason in a status, in bytes.
const REASON_MAX: usize = 512;

/// The request to the guest. `known` is the usage of the owner's namespace without this partition,
/// and that of the others; `waiting` are the other waiting partitions by size, and `held` counts
/// the partitions that the owner has or is getting.
pub fn partition_request(
    partition: &IPUPartition,
    known: (NamespaceContext, BTreeMap<String, Usage>),
    waiting: Vec<SizeCount>,
    held: u32,
    now: Timestamp,
) -> PartitionRequest {
    let spec = &partition.spec;
    PartitionRequest {
        namespace: spec.owner.namespace.clone(),
        owner: spec.owner.name.clone(),
        slot: spec.slot,
        ipus: spec.ipus,
        gcds: spec.gcds,
        node_selector: spec.options.node_selector.clone(),
        context: PlacementContext {
            owner: owner(spec),
            namespace: known.0,
            others: known.1,
            waiting,
            options: options(&spec.options, held),
            progress: progress(partition, now),
        },
    }
}

fn owner(spec: &IPUPartitionSpec) -> Owner {
    let metadata = &spec.owner_metadata;
    Owner {
        api_version: spec.owner.api_version.clone(),
        kind: spec.owner.kind.clone(),
        labels: owner_metadata::bounded_labels(&metadata.labels),
        annotations: owner_metadata::bounded_annotations(&metadata.annotations),
        priority_class: metadata.priority_class_name.clone(),
    }
}

fn options(options: &PartitionOptions, held: u32) -> Options {
    Options {
        gang: options.gang_size.map(|size| Gang { size, held }),
        replicas: options.replicas,
        reconfigurable: options.reconfigurable,
        relocatable: options.relocatable,
        pinned: options.pinned,
    }
}

fn progress(partition: &IPUPartition, now: Timestamp) -> Progress {
    let status = partition.status.as_ref();
    let created = partition.metadata.creation_timestamp.as_ref();
    let since = status
        .and_then(partition_conditions::not_ready_since)
        .or(created.map(|created| created.0));
    let waited = since.map_or(0, |since| now.duration_since(since).as_secs());
    let is_removed = |attempt: &Attempt| attempt.outcome == AttemptOutcome::Removed;
    Progress {
        dry_run: false,
        asked_before: status.is_some_and(|status| !status.waiting.is_empty()),
        placed_before: status.is_some_and(|status| status.attempts.iter().any(is_removed)),
        waited_seconds: u64::try_from(waited).unwrap_or(0),
    }
}

/// The attempts of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// The attempts, as a guest gets them.
    pub attempts: Vec<PlaceAttempt>,
    /// Names of the controllers that refused because they lack free IPUs.
    pub exhausted: BTreeSet<String>,
}

/// The attempts of this round: controllers that refused, and those that may still hold a partition,
/// because they do not answer or have not removed it. A refusal for lack of IPUs counts for all
/// requests of its size alike, as long as it stands: if it counted only for this one, a later
/// request would get the next IPUs.
pub fn tried(
    partition: &IPUPartition,
    standing: &StandingRefusals,
    views: &[ControllerView],
) -> Tried {
    let spec = &partition.spec;
    let own = partition.status.iter().flat_map(|status| &status.attempts);
    let (exhausted, others): (Vec<&Attempt>, Vec<&Attempt>) =
        own.partition(|attempt| attempt.is_exhausted());
    let own_exhausted: Vec<_> = exhausted.into_iter().filter_map(own_attempt).collect();
    let lacking = if refusals::are_options_usual(&spec.options) {
        let uid = partition.metadata.uid.as_deref().unwrap_or_default();
        standing.attempts(views, uid, spec.ipus, &own_exhausted)
    } else {
        own_exhausted
    };
    let names = lacking.iter().map(|attempt| attempt.controller.clone());
    Tried {
        exhausted: names.collect(),
        attempts: others
            .into_iter()
            .filter_map(own_attempt)
            .chain(lacking)
            .collect(),
    }
}

fn own_attempt(attempt: &Attempt) -> Option<PlaceAttempt> {
    let (outcome, fallback) = match attempt.outcome {
        AttemptOutcome::Refused => (PlaceOutcome::Refused, "it refused"),
        AttemptOutcome::Unknown | AttemptOutcome::Created => (
            PlaceOutcome::Unreachable,
            "it may still hold an earlier partition of this slot",
        ),
        AttemptOutcome::Removed => return None,
    };
    Some(PlaceAttempt {
        controller: attempt.controller.name.clone(),
        outcome,
        reason: attempt
            .reason
            .clone()
            .unwrap_or_else(|| fallback.to_owned()),
    })
}

/// The policy that decided. If the host has overruled a guest, that is the built-in serial walk.
pub fn decided_by(placed: &Placed) -> DecidedBy {
    if placed.overruled.is_some() {
        return DecidedBy {
            policy: BUILT_IN.to_owned(),
            digest: None,
        };
    }
    DecidedBy {
        policy: placed.policy.clone(),
        digest: placed.digest.as_ref().map(ToString::to_string),
    }
}

/// The decision of `by`, with the entry of the controller. A name that is not in the list comes
/// from a list that has changed meanwhile: the partition waits for the next decision.
pub fn answer(
    decision: Decision,
    by: DecidedBy,
    controllers: &[ControllerRef],
) -> PlacementDecision {
    match decision {
        Decision::Try(name) => match controllers.iter().find(|known| known.name == name) {
            Some(controller) => PlacementDecision::Try(controller.clone(), by),
            None => PlacementDecision::Wait(vec![WaitingReason {
                controller: name,
                reason: "it was taken off the admin's list of controllers just now".to_owned(),
            }]),
        },
        Decision::Wait(passed_over) => {
            let reasons = passed_over.into_iter().map(|passed| WaitingReason {
                controller: passed.controller,
                reason: shortened(&passed.reason),
            });
            PlacementDecision::Wait(reasons.collect())
        }
        Decision::Reject(why) => PlacementDecision::Reject(shortened(&why)),
    }
}

/// The reasons of a guest. Those of controllers that have refused a partition of this size because
/// they are `exhausted`, although as many IPUs are free, get the likely cause: a partition needs
/// adjacent IPUs, and the controller has not reported which of them are free.
pub fn with_refusals(
    mut reasons: Vec<WaitingReason>,
    exhausted: &BTreeSet<String>,
    views: &[ControllerView],
    ipus: u32,
) -> Vec<WaitingReason> {
    for reason in &mut reasons {
        let name = &reason.controller;
        let view = views.iter().find(|view| view.name == *name);
        let view = view.filter(|view| view.largest_free >= ipus && exhausted.contains(name));
        if let Some(view) = view {
            reason.reason = format!("{}; {}", reason.reason, refusals::likely_cause(view));
        }
    }
    reasons
}

/// Returns why a cordoned controller gets no new partitions.
pub fn cordon_reason(view: &ControllerView, cordons: &CordonStates) -> WaitingReason {
    let reason = match cordons.get(&view.name) {
        Some(CordonState::Draining) => "it is being drained",
        Some(CordonState::Cordoned) | None => "it is cordoned",
    };
    WaitingReason {
        controller: view.name.clone(),
        reason: format!("{reason} and gets no new partitions"),
    }
}

/// Limits text from outside for a status.
pub fn shortened(text: &str) -> String {
    sanitize(text, REASON_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_refusal_for_lack_of_ipus_gets_the_likely_cause() {
        let view = ControllerView {
            name: "pod1".to_owned(),
            label_key: "ipunode".to_owned(),
            label_value: "pod1".to_owned(),
            has_nodes: true,
            unschedulable: None,
            unreachable: None,
            total_ipus: 16,
            used_ipus: 8,
            largest_free: 8,
            free_blocks: Vec::new(),
            failures: 0,
        };
        for (name, expected) in [
            (
                "pod1",
                "it was tried; 8 of its 16 IPUs are free, perhaps not together",
            ),
            ("pod2", "it was tried"),
        ] {
            let exhausted = BTreeSet::from([name.to_owned()]);
            let reasons = vec![WaitingReason {
                controller: "pod1".to_owned(),
                reason: "it was tried".to_owned(),
            }];
            let views = std::slice::from_ref(&view);
            let reasons = with_refusals(reasons, &exhausted, views, 8);
            assert_eq!(reasons[0].reason, expected);
        }
    }

    #[test]
    fn a_refusal_for_lack_of_ipus_is_known_by_its_field() {
        let status = json!({"attempts": [
            attempt("pod1", "full", Some(true)),
            attempt("pod2", "odd (ResourceExhausted)", Some(false)),
            attempt("pod3", "full (ResourceExhausted)", None),
        ]});
        let mut partition: IPUPartition = serde_json::from_value(json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition", "metadata": {"uid": "a"},
            "spec": {
                "owner": {"apiVersion": "v1", "kind": "K", "namespace": "n", "name": "a", "uid": "u"},
                "slot": 0, "ipus": 8, "gcds": 1, "options": {"reconfigurable": true},
            },
            "status": status,
        }))
        .unwrap();
        let found = tried(&partition, &StandingRefusals::default(), &[]);
        assert_eq!(found.attempts.len(), 3);
        assert_eq!(found.exhausted, ["pod1", "pod3"].map(str::to_owned).into());
        partition.spec.options.reconfigurable = false;
        let found = tried(&partition, &StandingRefusals::default(), &[]);
        assert_eq!(found.exhausted, BTreeSet::new(), "none stands");
        assert_eq!(found.attempts.len(), 1);
    }

    fn attempt(controller: &str, reason: &str, exhausted: Option<bool>) -> Value {
        json!({
            "controller": {
                "name": controller, "host": controller, "port": 1, "labelKey": "a", "labelValue": "b",
            },
            "id": "p", "outcome": "refused", "reason": reason, "exhausted": exhausted,
        })
    }
}
