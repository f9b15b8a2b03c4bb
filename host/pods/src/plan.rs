//! Pure: the next step of a native Pod, and the content of its condition.

mod starting;
mod terminating;

use std::time::Duration;

use ipu_api::pod_request::{ExistingPartition, NewPartition, PodRequest, refused_size};
use jiff::Timestamp;

use crate::claims::contradiction;
use crate::observed::ObservedPod;
use crate::partition::{Partition, PartitionRef, State};
use crate::pod::{NativePod, Stage};
use crate::report::{self, Disruption, Report};

/// Reasons of V-IPU controllers that a condition lists.
const LISTED: usize = 5;

/// The next step for a Pod.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// The next step.
    pub step: Option<Step>,
    /// The condition.
    pub report: Option<Report>,
    /// Delay of the next decision, if no event comes before.
    pub requeue: Option<Duration>,
}

/// What decisions read beside the caches.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// The current time.
    pub now: Timestamp,
    /// Time for which a node is unreachable until its Pods are deleted by force. `None`: they never
    /// are.
    pub lost_node: Option<Duration>,
    /// Time since which the node of the Pod is unreachable, if it has been for that long.
    pub node_lost_since: Option<Timestamp>,
    /// Time for which a Pod that cannot start keeps its IPUs. `None`: for ever.
    pub start_timeout: Option<Duration>,
    /// Most IPUs of one Pod. The webhook checks it too; this check is for Pods that have passed it
    /// by.
    pub max_ipus: u32,
}

/// A step that changes the cluster.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Creates the IPUPartition of the Pod, with this number of IPUs.
    Create(u32),
    /// Claims this IPUPartition of the Pod's Workload.
    Claim(Box<Partition>),
    /// Deletes this IPUPartition, which was created for the Pod.
    Release(Box<Partition>),
    /// Gives the Pod this partition and removes its gate.
    Bind(PartitionRef),
    /// Evicts the Pod for this reason: its owner creates another one.
    Evict(Disruption),
    /// Deletes the Pod, whose node is lost, without waiting for its containers.
    ForceDelete,
}

impl Step {
    /// Whether later updates cannot reach the Pod.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Evict(_) | Self::ForceDelete)
    }
}

impl Plan {
    fn step(step: Option<Step>) -> Self {
        Self {
            step,
            ..Self::default()
        }
    }

    fn report(report: Report) -> Self {
        Self {
            report: Some(report),
            ..Self::default()
        }
    }
}

/// Decides the next step for a Pod.
pub fn plan(seen: &ObservedPod, around: &Circumstances) -> Plan {
    let ObservedPod {
        pod,
        own,
        named,
        claimable,
    } = seen;
    if pod.stage == Stage::Ended {
        return Plan::step(release(own.as_ref()));
    }
    if let Some(termination) = &pod.termination {
        return terminating::plan(pod, termination, around);
    }
    let request = match &pod.request {
        Ok(request) => request,
        Err(error) => return Plan::report(report::invalid(&error.to_string())),
    };
    let partition = match request {
        PodRequest::New(_) => own.as_ref(),
        PodRequest::Existing(_) => named.as_ref().filter(|one| is_shared_with(one, pod)),
    };
    match (&pod.stage, &pod.partition_id) {
        (Stage::Gated(others), _) if !others.is_empty() => {
            Plan::report(report::waiting_for_gates(others))
        }
        (Stage::Gated(_), _) => match (request, partition) {
            (PodRequest::New(new), None) => requested(new, claimable.as_ref(), around),
            (PodRequest::New(_), Some(own)) => gated(pod, None, own),
            (PodRequest::Existing(named), Some(found)) => gated(pod, Some(named), found),
            (PodRequest::Existing(named), None) => {
                Plan::report(report::not_found(&named.name, &pod.reference.namespace))
            }
        },
        (Stage::Ungated, Some(id)) => ungated(pod, id, partition, around),
        (Stage::Ungated, None) => Plan {
            step: release(own.as_ref()),
            report: Some(report::gate_removed()),
            requeue: None,
        },
        (Stage::Ended, _) => Plan::default(),
    }
}

/// Whether a Pod may use an existing partition: its owner is of the Pod's namespace, and neither an
/// IPUJob, which resets and releases its partitions as it needs them, nor another native Pod, nor a
/// Workload of Kueue.
fn is_shared_with(partition: &Partition, pod: &NativePod) -> bool {
    let owner = &partition.owner;
    let is_own_of_another = partition.is_of_pod || partition.is_of_workload;
    *owner.namespace == *pod.reference.namespace && owner.kind != "IPUJob" && !is_own_of_another
}

fn release(own: Option<&Partition>) -> Option<Step> {
    let own = own.filter(|own| !matches!(own.state, State::Releasing(_)))?;
    Some(Step::Release(Box::new(own.clone())))
}

/// A Pod on which only the gate of the operator is left, and that has no IPUPartition yet.
fn requested(new: &NewPartition, claimable: Option<&Partition>, around: &Circumstances) -> Plan {
    if let Some(why) = refused_size(new.ipus, around.max_ipus) {
        let why = format!("{}: requests {} IPUs, {why}", new.field(), new.ipus);
        return Plan::report(report::invalid(&why));
    }
    let step = match claimable {
        Some(one) => Step::Claim(Box::new(one.clone())),
        None => Step::Create(new.ipus),
    };
    Plan {
        step: Some(step),
        report: Some(report::forming()),
        requeue: None,
    }
}

/// A Pod on which only the gate of the operator is left, and the partition that it waits for.
fn gated(pod: &NativePod, existing: Option<&ExistingPartition>, partition: &Partition) -> Plan {
    if let Some(existing) = existing.filter(|existing| existing.gcd >= partition.gcds) {
        return Plan::report(report::no_such_gcd(existing, partition.gcds));
    }
    match &partition.state {
        State::Ready(partition_ref) => match contradiction(pod, partition_ref) {
            Some(contradiction) => Plan::report(report::invalid(&contradiction)),
            None => Plan::step(Some(Step::Bind(partition_ref.clone()))),
        },
        State::Waiting(reasons) if reasons.is_empty() => Plan::report(report::forming()),
        State::Waiting(reasons) => Plan::report(report::waiting(&listed(reasons))),
        State::Unusable(reason) | State::Releasing(reason) => Plan::report(report::waiting(reason)),
        State::Rejected(reason) => Plan::report(report::rejected(reason)),
        State::Broken(reason) => Plan {
            // Another one is requested once it is gone.
            step: existing
                .is_none()
                .then(|| Step::Release(Box::new(partition.clone()))),
            report: Some(report::waiting(reason)),
            requeue: None,
        },
    }
}

/// A Pod that has a partition of this id.
fn ungated(
    pod: &NativePod,
    id: &str,
    partition: Option<&Partition>,
    around: &Circumstances,
) -> Plan {
    let Some(partition) = partition else {
        return lost(
            pod,
            &format!("the IPUPartition of partition {id} was deleted"),
        );
    };
    match &partition.state {
        State::Broken(reason) | State::Rejected(reason) => {
            lost(pod, &format!("partition {id}: {reason}"))
        }
        State::Releasing(_) => Plan::report(report::deleted(&partition.name)),
        _ if partition.id.as_deref() != Some(id) => {
            lost(pod, &format!("partition {id} does not exist any more"))
        }
        State::Ready(partition_ref) => starting::plan(pod, partition_ref, around),
        State::Waiting(_) | State::Unusable(_) => Plan::default(),
    }
}

fn lost(pod: &NativePod, why: &str) -> Plan {
    let report = report::lost(why, pod.has_controller);
    Plan {
        step: pod.has_controller.then(|| Step::Evict(report.disruption())),
        report: Some(report),
        requeue: None,
    }
}

fn listed(reasons: &[String]) -> String {
    ipu_text::listed(reasons.iter(), LISTED, "; ")
}

#[cfg(test)]
mod tests;
