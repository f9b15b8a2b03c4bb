//! Pure: the fields that the dashboard stores of an IPUPartition.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase, WaitingReason,
};
use ipu_api::partition_conditions::READY;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::Serialize;

use crate::shown::shown;

/// Most reasons of a partition that waits: with hundreds of V-IPU controllers, each has one of its
/// own.
const REASONS_MAX: usize = 8;

/// Most V-IPU controllers that a reason names.
const NAMED_MAX: usize = 4;

/// Most V-IPU controllers on which a partition may have left something.
const HELD_MAX: usize = 8;

/// An IPUPartition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner: Owner,
    /// Index of the partition among those of its owner.
    pub slot: u32,
    /// Its IPUs.
    pub ipus: u32,
    /// Number of partitions of its owner that are useful only together.
    pub gang_size: Option<u32>,
    /// Its phase.
    pub phase: PartitionPhase,
    /// Whether it waits for free IPUs.
    pub is_waiting: bool,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Since when it is ready or not.
    pub since: Option<Timestamp>,
    /// The V-IPU controller that has it.
    pub controller: Option<String>,
    /// Its id there.
    pub partition_id: Option<String>,
    /// Place of its first IPU there.
    pub first_ipu: Option<u32>,
    /// Other V-IPU controllers that may have something of it, and whether that is unknown.
    pub held: BTreeMap<String, bool>,
    /// Reasons for its wait, by their text.
    pub reasons: Vec<Reason>,
    /// Number of further V-IPU controllers whose reasons are not stored.
    pub more_reasons: usize,
    /// The last message.
    pub message: Option<String>,
    /// Node selector of its Pods.
    pub node_selector: BTreeMap<String, String>,
}

/// The owner of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Such as `IPUJob`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    #[serde(skip)]
    pub uid: String,
}

/// A reason of V-IPU controllers not to serve a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The reason.
    pub reason: String,
    /// The first V-IPU controllers that have it.
    pub controllers: Vec<String>,
    /// Number of V-IPU controllers with it.
    pub count: usize,
}

impl Partition {
    /// The stored fields of an object. `None`: it is unreadable.
    pub fn of(object: DynamicObject) -> Option<Self> {
        let object: IPUPartition = object.try_parse().ok()?;
        Some(Self::new(&object))
    }

    /// The stored fields of an IPUPartition.
    pub fn new(object: &IPUPartition) -> Self {
        let empty = IPUPartitionStatus::default();
        let status = object.status.as_ref().unwrap_or(&empty);
        let (metadata, spec) = (&object.metadata, &object.spec);
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        let ready = status.conditions.iter().find(|one| one.type_ == READY);
        let controller = status.controller.as_ref().map(|one| shown(&one.name));
        let is_waiting = object.is_waiting();
        let reasons = if is_waiting { &*status.waiting } else { &[] };
        let (reasons, more_reasons) = grouped(reasons);
        let selector = spec.options.node_selector.iter().filter(|_| is_waiting);
        Self {
            name: shown(metadata.name.as_deref().unwrap_or_default()),
            owner: Owner {
                kind: shown(&spec.owner.kind),
                namespace: shown(&spec.owner.namespace),
                name: shown(&spec.owner.name),
                uid: shown(&spec.owner.uid),
            },
            slot: spec.slot,
            ipus: spec.ipus,
            gang_size: spec.options.gang_size,
            phase: status.phase,
            is_waiting,
            is_terminating: metadata.deletion_timestamp.is_some(),
            created,
            since: ready.map(|one| one.last_transition_time.0).or(created),
            held: held(&status.attempts, controller.as_deref()),
            controller,
            partition_id: status.partition_id.as_deref().map(shown),
            first_ipu: status.first_ipu,
            reasons,
            more_reasons,
            message: status.message.as_deref().map(shown),
            node_selector: selector
                .map(|(key, value)| (shown(key), shown(value)))
                .collect(),
        }
    }

    /// The V-IPU controllers that certainly or possibly have a partition of it.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        let held = self.held.keys().map(String::as_str);
        self.controller.as_deref().into_iter().chain(held)
    }
}

/// The V-IPU controllers of attempts that may have left something, but for the one that has the
/// partition.
fn held(attempts: &[Attempt], controller: Option<&str>) -> BTreeMap<String, bool> {
    let held = attempts.iter().filter(|attempt| attempt.is_held());
    let held = held.map(|attempt| {
        let is_unknown = attempt.outcome == AttemptOutcome::Unknown;
        (shown(&attempt.controller.name), is_unknown)
    });
    held.filter(|(name, _)| Some(name.as_str()) != controller)
        .take(HELD_MAX)
        .collect()
}

/// Reasons with the same text are one. Returns how many V-IPU controllers have none of those that
/// are kept.
fn grouped(waiting: &[WaitingReason]) -> (Vec<Reason>, usize) {
    let (mut reasons, mut more): (Vec<Reason>, usize) = (Vec::new(), 0);
    for one in waiting {
        let text = shown(&one.reason);
        let found = reasons.iter().position(|other| other.reason == text);
        if let Some(index) = found {
            let reason = &mut reasons[index];
            reason.count += 1;
            if reason.controllers.len() < NAMED_MAX {
                reason.controllers.push(shown(&one.controller));
            }
        } else if reasons.len() < REASONS_MAX {
            reasons.push(Reason {
                reason: text,
                controllers: vec![shown(&one.controller)],
                count: 1,
            });
        } else {
            more += 1;
        }
    }
    (reasons, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(controller: usize, reason: &str) -> WaitingReason {
        WaitingReason {
            controller: format!("pod{controller}:8090"),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn equal_reasons_are_one_and_their_number_is_bounded() {
        let mut all: Vec<_> = (0..6).map(|number| waiting(number, "cordoned")).collect();
        all.extend((6..256).map(|number| waiting(number, &format!("{number} IPUs are used"))));
        let (reasons, more) = grouped(&all);
        assert_eq!(reasons.len(), REASONS_MAX);
        assert_eq!(reasons[0].count, 6);
        assert_eq!(reasons[0].controllers.len(), NAMED_MAX);
        let counted: usize = reasons.iter().map(|one| one.count).sum();
        assert_eq!(counted + more, 256);
    }
}
