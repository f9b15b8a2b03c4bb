//! The partitions that no Pod has used since they were created or reset, as far as the watches show it.
//!
//! A partition that Pods could use counts as used, unless this process has seen when they could not use it yet, and has
//! seen no Pod of it since. So only an interval that nobody observed costs a reset, and no write records the first use.

use std::collections::{BTreeMap, HashMap};

use ipu_api::ipupartition::{IPUPartition, IPUPartitionStatus, PartitionPhase};
use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_runtime::watch_store;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;

use super::facts::partition::use_key;
use super::facts::pod::has_not_run;
use super::job_object::JobObject;

/// By job and slot: the partitions that no Pod has used. Those of running jobs are not in it.
#[derive(Debug, Default)]
pub struct UnusedPartitions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    jobs: HashMap<Uid, BTreeMap<u32, Slot>>,
    /// Whether the watch of Pods lists them again. Then Pods may have come and gone unseen.
    lists_pods: bool,
}

#[derive(Debug)]
struct Slot {
    /// UID of the IPUPartition.
    object: Uid,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Pods cannot use the partition yet.
    Pending(Earlier),
    /// Pods can use the partition under this key, and none has used it.
    Unused(Box<str>),
}

/// What Pods may have used when a partition became pending.
#[derive(Debug)]
struct Earlier {
    /// Ids of partitions on V-IPU controllers. One that was lost can come back.
    ids: Box<[Box<str>]>,
    /// Number of resets.
    resets: i64,
}

impl UnusedPartitions {
    /// Applies an event of the watch of IPUPartitions, which starts after the first list of Pods is complete.
    pub fn apply_partition_event(&self, event: &Event<IPUPartition>) {
        if matches!(event, Event::Init) {
            // What happened before the list was not observed, and a restored API server lists earlier states.
            self.0.lock().jobs.clear();
        }
        let Some(partition) = watch_store::object(event) else {
            return;
        };
        let Some(job) = partition.job() else {
            return;
        };
        let mut known = self.0.lock();
        let slot = partition.spec.slot;
        let before = known.take(job.uid, slot);
        let is_gone =
            matches!(event, Event::Delete(_)) || partition.metadata.deletion_timestamp.is_some();
        if is_gone {
            return;
        }
        let object = Uid::of(partition.metadata.uid.as_deref().unwrap_or_default());
        let before = before.filter(|before| before.object == object);
        let state = next_state(partition, before.map(|before| before.state));
        if let Some(state) = state.filter(|state| !known.lists_pods || state.is_pending()) {
            let slots = known.jobs.entry(job.uid).or_default();
            slots.insert(slot, Slot { object, state });
        }
    }

    /// Applies an event of the watch of Pods: the Pod may have used the partition of its slot.
    pub fn apply_pod_event(&self, event: &Event<Pod>) {
        let mut known = self.0.lock();
        match event {
            Event::Init => {
                known.jobs.retain(|_, slots| {
                    slots.retain(|_, slot| slot.state.is_pending());
                    !slots.is_empty()
                });
                known.lists_pods = true;
            }
            Event::InitDone => known.lists_pods = false,
            Event::Delete(pod) if has_not_run(pod) || known.is_of_earlier_partition(pod) => {}
            Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod) => {
                if let (Some(job), Some(slot)) = (pod.job(), slot_of(pod)) {
                    known.take(job.uid, slot);
                }
            }
        }
    }

    /// Records that the Pods are created, before the first of them is: each may use the partition of its slot.
    pub fn use_by(&self, job: Uid, pods: &[Pod]) {
        let mut known = self.0.lock();
        for slot in pods.iter().filter_map(slot_of) {
            known.take(job, slot);
        }
    }

    /// Returns the keys of the unused partitions of a job, by slot.
    pub fn of(&self, job: Uid) -> BTreeMap<u32, Box<str>> {
        let known = self.0.lock();
        let slots = known.jobs.get(&job).into_iter().flatten();
        let unused = slots.filter_map(|(slot, known)| match &known.state {
            State::Unused(key) => Some((*slot, key.clone())),
            State::Pending(_) => None,
        });
        unused.collect()
    }

    /// Whether there is any state of a job.
    #[cfg(test)]
    pub(super) fn remembers(&self, job: Uid) -> bool {
        self.0.lock().jobs.contains_key(&job)
    }

    /// Forgets a deleted job.
    pub fn forget(&self, job: Uid) {
        self.0.lock().jobs.remove(&job);
    }
}

impl State {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(_))
    }
}

impl Known {
    /// Whether a Pod that is gone used an earlier partition of its slot.
    fn is_of_earlier_partition(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        let id = labels.and_then(|labels| labels.get(labels::PARTITION_ID_LABEL));
        let (Some(job), Some(slot), Some(id)) = (pod.job(), slot_of(pod), id) else {
            return false;
        };
        let slots = self.jobs.get(&job.uid);
        match slots.and_then(|slots| Some(&slots.get(&slot)?.state)) {
            Some(State::Pending(earlier)) => earlier.ids.iter().any(|known| **known == **id),
            Some(State::Unused(key)) => key.rsplit_once('/').is_some_and(|(own, _)| own != id),
            None => false,
        }
    }

    fn take(&mut self, job: Uid, slot: u32) -> Option<Slot> {
        let slots = self.jobs.get_mut(&job)?;
        let taken = slots.remove(&slot);
        if slots.is_empty() {
            self.jobs.remove(&job);
        }
        taken
    }
}

/// The state after a partition has changed. `None` if Pods may have used it.
fn next_state(partition: &IPUPartition, before: Option<State>) -> Option<State> {
    let nothing = IPUPartitionStatus::default();
    let status = partition.status.as_ref().unwrap_or(&nothing);
    let resets = status.observed_reset_generation;
    let id = status.partition_id.as_deref();
    let is_offered = matches!(status.phase, PartitionPhase::Ready | PartitionPhase::Error)
        && partition.spec.reset_generation <= resets;
    match (id.filter(|_| is_offered), before) {
        (None, Some(State::Pending(earlier))) => Some(State::Pending(earlier)),
        (None, Some(State::Unused(_)) | None) => Some(State::Pending(Earlier::of(status))),
        (Some(id), Some(State::Pending(earlier))) => {
            let is_new = earlier.resets < resets || !earlier.ids.iter().any(|known| **known == *id);
            is_new.then(|| State::Unused(use_key(id, resets).into()))
        }
        (Some(id), Some(State::Unused(key))) => {
            (*key == *use_key(id, resets)).then_some(State::Unused(key))
        }
        (Some(_), None) => None,
    }
}

impl Earlier {
    fn of(status: &IPUPartitionStatus) -> Self {
        let attempts = status.attempts.iter().map(|attempt| &attempt.id);
        let ids = attempts.chain(&status.partition_id);
        Self {
            ids: ids.map(|id| id.as_str().into()).collect(),
            resets: status.observed_reset_generation,
        }
    }
}

/// The slot of a worker's partition.
fn slot_of(pod: &Pod) -> Option<u32> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(labels::INSTANCE_LABEL)?.parse().ok()
}

#[cfg(test)]
mod tests;
