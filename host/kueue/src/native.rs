//! Pure: the partitions of a Workload whose Pods request IPUs themselves, such as that of a Job or
//! a JobSet: they are created while the admission check waits, one for each Pod, and belong to the
//! Workload until its Pods claim them.
//!
//! A claimed partition is the Pod's (`ipu-pods`). A Pod that finds none, such as one that replaces
//! a failed Pod, requests its own. A partition is released if no Pod claims it within some time
//! after the admission, or after the last claim.

pub mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels::{
    CLAIMED_AT_ANNOTATION, POD_UID_LABEL, WORKLOAD_ANNOTATION, WORKLOAD_UID_LABEL,
};
use ipu_api::partition_conditions;
use ipu_jobs::facts::partition::PartitionState;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::slots::Slot;
use crate::check::{self, Answer};
use crate::objects::{
    ADMITTED, EVICTED, FINISHED, PODS_READY, QUOTA_RESERVED, ResourceFlavorSpec, Workload,
};
use crate::partitions::JobPartition;

/// Most partitions that are created before an admission. The Pods of a larger Workload request
/// theirs themselves.
const SLOTS_MAX: usize = 256;

/// Delay of the next look-up of an unknown flavor.
const FLAVOR_DELAY: Duration = Duration::from_secs(5);

/// Time after the admission and after each claim in which the next Pod claims its partition, if all
/// Pods exist, or if the drain of a V-IPU controller waits for the partition.
const CLAIM_TIME: Duration = Duration::from_mins(5);

/// The same while a Pod may be missing. A JobSet that starts in order creates some Pods only when
/// others are ready.
const LONGEST_CLAIM_TIME: Duration = Duration::from_hours(1);

/// A partition that was created for a Pod of a Workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserved {
    /// Its Workload, its slot and its state.
    pub of: JobPartition,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version, for preconditions.
    pub resource_version: String,
    /// Whether a Pod has claimed it.
    pub is_claimed: bool,
    /// Time of the claim, if known.
    pub claimed_at: Option<Timestamp>,
    /// Whether the drain of its V-IPU controller waits for its release.
    pub holds_drain: bool,
    /// Number of its IPUs.
    pub ipus: u32,
    /// Labels that its nodes must have.
    pub node_selector: BTreeMap<String, String>,
}

impl Reserved {
    /// Reads an IPUPartition. `None`: it was not created for a Workload.
    pub fn of(object: &IPUPartition) -> Option<Self> {
        let metadata = &object.metadata;
        let has_label = |key: &str| {
            metadata
                .labels
                .as_ref()
                .is_some_and(|all| all.contains_key(key))
        };
        if object.spec.owner.kind != "Workload" || !has_label(WORKLOAD_UID_LABEL) {
            return None;
        }
        let annotations = metadata.annotations.as_ref();
        let claimed_at = annotations.and_then(|all| all.get(CLAIMED_AT_ANNOTATION));
        let status = object.status.as_ref();
        Some(Self {
            of: JobPartition::of_owner(object),
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            resource_version: metadata.resource_version.clone()?,
            is_claimed: has_label(POD_UID_LABEL),
            claimed_at: claimed_at.and_then(|time| time.parse().ok()),
            holds_drain: status.is_some_and(partition_conditions::holds_drain),
            ipus: object.spec.ipus,
            node_selector: object.spec.options.node_selector.clone(),
        })
    }

    fn is_terminating(&self) -> bool {
        matches!(self.of.state, PartitionState::Terminating(_))
    }

    /// Whether it can be released: no Pod has it, and it is not being released yet.
    fn is_left(&self) -> bool {
        !self.is_claimed && !self.is_terminating()
    }

    /// Returns its wait for its Pod. For an unclaimed partition, only `PodsReady` shows that its
    /// Pod exists.
    fn claim_time(&self, has_all_pods: bool) -> Duration {
        if has_all_pods || self.holds_drain {
            CLAIM_TIME
        } else {
            LONGEST_CLAIM_TIME
        }
    }

    fn fits(&self, slot: &Slot) -> bool {
        self.ipus == slot.ipus && self.node_selector == slot.node_selector
    }
}

/// State of a Workload.
#[derive(Clone, Debug)]
pub struct ObservedWorkload {
    /// The Workload. `None`: it is gone, or became that of an IPUJob.
    pub workload: Option<Arc<Workload>>,
    /// The partitions of Workloads of this name.
    pub partitions: Vec<Reserved>,
    /// All flavors.
    pub flavors: Arc<BTreeMap<Box<str>, ResourceFlavorSpec>>,
    /// Names of the AdmissionChecks that wait for partitions.
    pub checks: Arc<BTreeSet<Box<str>>>,
}

/// The next step for a Workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The next step.
    pub step: Option<Step>,
    /// Delay of the next decision, if no event comes before.
    pub requeue: Option<Duration>,
}

/// A step that changes the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Creates the partitions of these slots.
    Create(Vec<Slot>),
    /// Deletes a partition that no Pod has claimed.
    Release(Box<Reserved>),
    /// Answers an admission check.
    AnswerCheck {
        /// Name of the check.
        name: String,
        /// The answer.
        answer: Answer,
    },
}

impl From<Step> for Plan {
    fn from(step: Step) -> Self {
        Self {
            step: Some(step),
            requeue: None,
        }
    }
}

/// Decides the next step for a Workload that belongs to no IPUJob. A Pod may have at most
/// `max_ipus`.
///
/// `None`: native Pods are not reconciled. Then no Pod would claim a partition, and none is
/// created.
pub fn plan(seen: &ObservedWorkload, max_ipus: Option<u32>, now: Timestamp) -> Plan {
    let workload = seen.workload.as_deref().filter(|one| is_reserved(one));
    let uid = workload.and_then(|one| one.metadata.uid.as_deref());
    let mut partitions = Vec::new();
    for partition in &seen.partitions {
        if Some(&*partition.of.job.uid) == uid {
            partitions.push(partition);
        } else if partition.is_left() {
            return release(partition).into();
        }
    }
    workload.map_or_else(Plan::default, |workload| {
        checked(seen, workload, (&partitions, max_ipus), now)
    })
}

/// Whether a Workload holds quota and is not about to lose it.
fn is_reserved(workload: &Workload) -> bool {
    workload.is(QUOTA_RESERVED)
        && !workload.is(EVICTED)
        && !workload.is(FINISHED)
        && workload.spec.active != Some(false)
        && workload.metadata.deletion_timestamp.is_none()
}

/// Decides on the admission check of a Workload with reserved quota.
fn checked(
    seen: &ObservedWorkload,
    workload: &Workload,
    (partitions, max_ipus): (&[&Reserved], Option<u32>),
    now: Timestamp,
) -> Plan {
    let mut checks = workload.checks().iter();
    let pending = checks.find_map(|check| {
        let name = check.get("name")?.as_str()?;
        (seen.checks.contains(name) && check["state"] == "Pending").then_some((name, check))
    });
    let Some((name, check)) = pending else {
        return admitted(workload, partitions, now);
    };
    let answered = |answer: Answer| Step::AnswerCheck {
        name: name.to_owned(),
        answer,
    };
    // The Workload of a job that MultiKueue is about to create has no owner.
    let owners = workload.metadata.owner_references.as_ref();
    let has_owner = owners.is_some_and(|owners| !owners.is_empty());
    let Some(slots) = slots::slots(workload, &seen.flavors) else {
        return Plan {
            step: None,
            requeue: Some(FLAVOR_DELAY),
        };
    };
    let Some(max_ipus) = max_ipus.filter(|_| has_owner && !slots.is_empty()) else {
        return answered(Answer::of_other_jobs()).into();
    };
    if let Some(refusal) = slots.iter().find_map(|slot| slot.refusal(max_ipus)) {
        return answered(Answer::rejected(&refusal)).into();
    }
    if slots.len() > SLOTS_MAX {
        return answered(Answer::of_other_jobs()).into();
    }
    let (answer, requeue) = match check::not_before(check).filter(|time| *time > now) {
        Some(time) => match partitions.iter().find(|one| one.is_left()) {
            Some(left) => return release(left).into(),
            None => (
                Answer::delayed(time),
                Some(time.duration_since(now).unsigned_abs()),
            ),
        },
        None => match next_missing(partitions, &slots) {
            Some(step) => return step.into(),
            None => of_partitions(workload, partitions, &slots, now),
        },
    };
    Plan {
        step: (!answer.is_in(check)).then(|| answered(answer)),
        requeue,
    }
}

/// Decides on the partitions of a Workload with an answered check. Pods that are created too late
/// request their own partitions.
fn admitted(workload: &Workload, partitions: &[&Reserved], now: Timestamp) -> Plan {
    let Some(admitted) = workload.condition(ADMITTED, "True") else {
        return Plan::default();
    };
    let ready = workload.condition(PODS_READY, "True");
    let claims = partitions.iter().filter_map(|one| one.claimed_at);
    let since = claims
        // A time in the future is not the operator's, and would hold the partitions.
        .filter(|time| *time <= now)
        .chain(ready.map(|ready| ready.last_transition_time.0))
        .fold(admitted.last_transition_time.0, Ord::max);
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let mut requeue: Option<Duration> = None;
    for left in partitions.iter().filter(|one| one.is_left()) {
        let remaining = left.claim_time(ready.is_some()).saturating_sub(waited);
        if remaining.is_zero() {
            return release(left).into();
        }
        requeue = requeue.into_iter().chain([remaining]).min();
    }
    Plan {
        step: None,
        requeue,
    }
}

/// The next step until every slot has its partition: the release of one that does not fit, or the
/// creation of those that are missing.
fn next_missing(partitions: &[&Reserved], slots: &[Slot]) -> Option<Step> {
    let of = |slot: &Slot| partitions.iter().find(|one| one.of.instance == slot.index);
    let is_outdated = |slot: &Slot| {
        let found = of(slot).filter(|one| one.is_left())?;
        (!found.fits(slot)).then_some(*found)
    };
    if let Some(outdated) = slots.iter().find_map(is_outdated) {
        return Some(release(outdated));
    }
    let missing: Vec<Slot> = slots
        .iter()
        .filter(|slot| of(slot).is_none())
        .cloned()
        .collect();
    (!missing.is_empty()).then_some(Step::Create(missing))
}

fn release(partition: &Reserved) -> Step {
    Step::Release(Box::new(partition.clone()))
}

/// The answer for a Workload whose partitions are all requested, and the delay after which it may
/// change by itself.
fn of_partitions(
    workload: &Workload,
    partitions: &[&Reserved],
    slots: &[Slot],
    now: Timestamp,
) -> (Answer, Option<Duration>) {
    let states: Vec<JobPartition> = partitions.iter().map(|one| usable(one)).collect();
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    let (answer, delay) = check::answer(("Pod", count), &states, now);
    (answer.with_updates(updates(workload, slots)), delay)
}

/// A partition as the check sees it: one that a Pod of an earlier admission has claimed is not for
/// this one.
fn usable(partition: &Reserved) -> JobPartition {
    let mut of = partition.of.clone();
    if partition.is_claimed {
        // It does not count as a request without free capacity.
        of.requested = None;
        let reason = "a Pod of an earlier admission still uses the partition".to_owned();
        of.state = PartitionState::Waiting([reason].into());
    }
    of
}

/// The updates of a ready check. They contain the partitions that the Pods may claim.
fn updates(workload: &Workload, slots: &[Slot]) -> Value {
    let sets: BTreeSet<&str> = slots.iter().map(|slot| &*slot.pod_set).collect();
    let updates = sets.into_iter().map(
        |name| json!({"name": name, "annotations": {WORKLOAD_ANNOTATION: workload.metadata.name}}),
    );
    Value::Array(updates.collect())
}

#[cfg(test)]
mod tests;
