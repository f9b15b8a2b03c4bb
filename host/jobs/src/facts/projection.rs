//! Pure: the projections of Pods and IPUPartitions that the caches store: the fields that decisions
//! read, ready to use.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::interned::Interned;
use ipu_api::ipupartition::{ControllerRef, IPUPartition, IPUPartitionStatus};
use ipu_api::labels;
use ipu_api::naming;
use ipu_api::uid::Uid;
use ipu_runtime::pod_start::{self, StartState};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::hold::Hold;
use super::partition::{self, PartitionState, PartitionTimes};
use super::pod::{self, Failure, PodState, SidecarState};
use super::readiness::{self, Readiness};
use crate::job_object::{self, JobObject, JobRef, NameAndUid, job_uid};

/// A Pod of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedPod {
    /// Its name and UID.
    pub object: NameAndUid,
    /// Index of its instance, if it is a worker.
    pub instance: Option<u32>,
    /// Its termination, if it is terminating. In a box, because few Pods are.
    pub termination: Option<Box<Termination>>,
    /// Its sidecars.
    pub sidecars: SidecarState,
    /// Whether its command is held back.
    pub is_held: bool,
    /// Whether it has the ServiceAccount that the launchers of its namespace share.
    pub shares_rights: bool,
    /// Start time of its command, if that runs.
    pub running_since: Option<Box<Timestamp>>,
    /// Its start.
    pub start: StartState,
    /// Time since which its node prepares it, if it still does. In a box, because few Pods have it.
    pub preparing_since: Option<Box<Timestamp>>,
    /// The container that waits while the main one runs, with the reason. In a box, because few
    /// Pods have it.
    pub waiting_container: Option<Box<str>>,
    /// Its readiness.
    pub readiness: Readiness,
    /// Whether one of its containers may have started. The kubelet drops the states of the
    /// containers when it rejects a Pod after its own restart, so that only earlier states of the
    /// Pod show it.
    may_have_started: bool,
    /// The run of the job that it belongs to.
    run: i64,
    /// Digest of the id of its partition. The default is that of no partition.
    partition: Uid,
    /// Digests of its template.
    template: TemplateDigests,
    /// Its state, unless it is stale.
    state: PodState,
}

/// The termination of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    /// End of its grace period.
    pub due: Timestamp,
    /// Its node.
    pub node: Option<Box<str>>,
    /// Finalizers that keep it, although its containers have ended.
    pub held_by: Option<Box<str>>,
}

impl ObservedPod {
    /// Reads a Pod. `None` if it has no name or no UID.
    pub fn of(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let label = |key: &str| metadata.labels.as_ref()?.get(key);
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        let run = label(labels::RUN_LABEL).and_then(|run| run.parse().ok());
        let hold = Hold::of(pod);
        let object = NameAndUid::of(metadata)?;
        Some(Self {
            state: hold.state(object.name(), pod::state(pod)),
            object,
            instance: label(labels::INSTANCE_LABEL).and_then(|index| index.parse().ok()),
            termination: termination(pod).map(Box::new),
            sidecars: pod::sidecars(pod),
            is_held: hold == Hold::Held,
            shares_rights: shares_rights(pod),
            running_since: hold.running_since(pod::running_since(pod)).map(Box::new),
            start: pod_start::start_state(pod, pod::main_name(pod).unwrap_or_default()),
            preparing_since: pod_start::preparing_since(pod).map(Box::new),
            waiting_container: pod::waiting_container(pod).map(Into::into),
            readiness: hold.readiness(readiness::of_pod(pod)),
            may_have_started: pod::has_started_containers(pod),
            run: run.unwrap_or(0),
            partition: digest(label(labels::PARTITION_ID_LABEL)),
            template: TemplateDigests::of(
                annotation(labels::TEMPLATE_HASH_ANNOTATION),
                annotation(labels::CANONICAL_TEMPLATE_HASH_ANNOTATION),
            ),
        })
    }

    /// Adds what the state before shows. Without one, nobody has seen whether a rejected Pod ran.
    #[must_use]
    pub fn after(mut self, before: Option<&Self>) -> Self {
        let is_rejected = matches!(self.state, PodState::Rejected(_));
        self.may_have_started |= before.map_or(is_rejected, |before| before.may_have_started);
        self
    }

    /// Returns its state in the current run of the job. `partition` is the digest of the current
    /// partition id of its instance, if that is known. `is_known_rejected` means that the status of
    /// the job records the rejection of the Pod. Another rejected Pod that may have run is lost, as
    /// after any other disruption.
    pub fn state(&self, partition: Option<Uid>, run: i64, is_known_rejected: bool) -> PodState {
        let has_not_ended = matches!(self.state, PodState::Pending(_) | PodState::Running { .. });
        let uses_another = partition.is_some_and(|current| differs(self.partition, current));
        if self.run < run || (has_not_ended && uses_another) {
            return PodState::Stale;
        }
        match &self.state {
            PodState::Rejected(failure) if self.may_have_started && !is_known_rejected => {
                let failure = Failure {
                    started: !self.is_held,
                    ..(**failure).clone()
                };
                PodState::Lost(Box::new(failure))
            }
            state => state.clone(),
        }
    }

    /// Whether it was created from another template than this one.
    pub fn is_of_other_template(&self, template: &TemplateDigests) -> bool {
        let TemplateDigests { text, canonical } = self.template;
        // A Pod of 0.1.0 has no canonical form, and one of the same text has the same form.
        let is_other_form = canonical == Uid::default() || canonical != template.canonical;
        differs(text, template.text) && is_other_form
    }
}

/// Digests of the hashes of a template. The default is that of no hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateDigests {
    text: Uid,
    canonical: Uid,
}

impl TemplateDigests {
    /// Returns the digests of the hashes of a template's text and of its canonical form.
    pub fn of(text: Option<&String>, canonical: Option<&String>) -> Self {
        Self {
            text: digest(text),
            canonical: digest(canonical),
        }
    }
}

fn digest(text: Option<&String>) -> Uid {
    text.map_or_else(Uid::default, |text| Uid::of(text))
}

/// Whether a digest is known and differs from the current one.
fn differs(digest: Uid, current: Uid) -> bool {
    digest != Uid::default() && digest != current
}

fn shares_rights(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let account = spec.and_then(|spec| spec.service_account_name.as_deref());
    account == Some(naming::SHARED_LAUNCHERS)
}

fn termination(pod: &Pod) -> Option<Termination> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    Some(Termination {
        due: pod.metadata.deletion_timestamp.as_ref()?.0,
        node: node.map(Into::into),
        held_by: pod::holding_finalizers(pod).map(Into::into),
    })
}

/// An IPUPartition of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedPartition {
    /// Its name and UID.
    pub object: NameAndUid,
    /// Index of its instance.
    pub slot: u32,
    /// Its number of IPUs.
    pub ipus: u32,
    /// Its number of GCDs.
    pub gcds: u32,
    /// Number of resets that the V-IPU controller did by itself.
    pub automatic_resets: u32,
    /// Whether it is pinned to its IPUs.
    pub is_pinned: bool,
    /// Whether it has a deletion timestamp.
    pub is_terminating: bool,
    /// Whether a V-IPU partition of it may exist.
    pub is_placed: bool,
    /// Times of its request and readiness, and whether it is reset.
    pub times: PartitionTimes,
    /// Its state, for Pods without a node selector.
    pub state: PartitionState,
}

impl ObservedPartition {
    /// Reads an IPUPartition. `None` if it has no name or no UID.
    pub fn of(object: &IPUPartition, shared: &mut SharedFields) -> Option<Self> {
        let (spec, status) = (&object.spec, object.status.as_ref());
        let mut state = partition::state_with(object, |controller| shared.controller(controller));
        shared.share_reasons(&mut state);
        let resets = status.and_then(|status| status.auto_resets.as_ref());
        Some(Self {
            object: NameAndUid::of(&object.metadata)?,
            slot: spec.slot,
            ipus: spec.ipus,
            gcds: spec.gcds,
            automatic_resets: resets.map_or(0, |resets| resets.count),
            is_pinned: spec.options.pinned,
            is_terminating: object.metadata.deletion_timestamp.is_some(),
            is_placed: status.is_some_and(IPUPartitionStatus::is_placed),
            times: partition::times(object),
            state,
        })
    }

    /// Returns its state for Pods with this node selector. They cannot reach a partition whose
    /// controller has another node label.
    pub fn state(&self, selector: &BTreeMap<String, String>) -> PartitionState {
        match &self.state {
            PartitionState::Ready(placed) => match partition::selector_conflict(placed, selector) {
                None => PartitionState::Ready(placed.clone()),
                Some(reason) => PartitionState::Unusable(placed.clone(), reason),
            },
            other => other.clone(),
        }
    }
}

/// Common parts of the stored IPUPartitions, each once: their V-IPU controllers, and the reasons
/// for which requests of one size wait, which name every controller.
#[derive(Debug, Default)]
pub struct SharedFields {
    controllers: Interned<ControllerRef>,
    reasons: Interned<[String]>,
}

impl SharedFields {
    fn controller(&mut self, controller: &ControllerRef) -> Arc<ControllerRef> {
        let known = self.controllers.known(controller);
        known.unwrap_or_else(|| self.controllers.insert(Arc::new(controller.clone())))
    }

    fn share_reasons(&mut self, state: &mut PartitionState) {
        if let PartitionState::Waiting(reasons) = state {
            let known = self.reasons.known(reasons);
            *reasons = known.unwrap_or_else(|| self.reasons.insert(Arc::clone(reasons)));
        }
    }
}

impl JobObject for Pod {
    type Stored = Arc<ObservedPod>;
    type Shared = ();

    fn job(&self) -> Option<JobRef> {
        job_object::owner(&self.metadata)
    }

    fn store(self, (): &mut (), before: Option<&Arc<ObservedPod>>) -> Option<Arc<ObservedPod>> {
        let observed = ObservedPod::of(&self)?;
        Some(Arc::new(observed.after(before.map(|before| &**before))))
    }
}

impl JobObject for IPUPartition {
    type Stored = Arc<ObservedPartition>;
    type Shared = SharedFields;

    fn job(&self) -> Option<JobRef> {
        let owner = &self.spec.owner;
        owner.is_job().then(|| JobRef {
            namespace: owner.namespace.as_str().into(),
            name: owner.name.as_str().into(),
            uid: job_uid(&owner.namespace, &owner.uid),
        })
    }

    fn store(
        self,
        shared: &mut SharedFields,
        _: Option<&Arc<ObservedPartition>>,
    ) -> Option<Arc<ObservedPartition>> {
        ObservedPartition::of(&self, shared).map(Arc::new)
    }
}

#[cfg(test)]
mod tests;
