//! Pure: what the Pods of a Workload request, and the IPUPartition for each of them.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{
    IPUPartition, IPUPartitionSpec, OwnerMetadata, PartitionOptions, PartitionOwner,
};
use ipu_api::labels;
use ipu_api::owner_metadata::{bounded_annotations, bounded_labels};
use ipu_api::partition_request::new_partition;
use ipu_api::pod_request::{PodRequest, refused_size};
use ipu_api::queueing::{GROUP, VERSION};
use serde_json::{Value, json};

use crate::objects::{PodSet, ResourceFlavorSpec, Workload};
use crate::pod_sets::relevant;
use crate::updates;

/// Request of one Pod of a Workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Its number among all Pods of the Workload that request IPUs, from 0.
    pub index: u32,
    /// The pod set of the Pod.
    pub pod_set: String,
    /// Number of IPUs.
    pub ipus: u32,
    /// Labels that the Pod's node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Labels and annotations of the Pod, and its PriorityClass, for placement policies.
    pub owner_metadata: OwnerMetadata,
}

impl Slot {
    /// The reason for which its Pod can never be created: the rules for the size of a native Pod
    /// are those for a job.
    pub fn refusal(&self, max_ipus: u32) -> Option<String> {
        let Self { ipus, pod_set, .. } = self;
        let why = refused_size(*ipus, max_ipus)?;
        Some(format!(
            "each Pod of pod set {pod_set} requests {ipus} IPUs, {why}"
        ))
    }
}

/// Keeps of a template what decides which quota and which nodes its Pods need, and their metadata
/// if they request IPUs.
pub fn pruned(template: &Value) -> Value {
    let mut kept = relevant(template);
    if matches!(PodRequest::of(template), Ok(Some(PodRequest::New(_)))) {
        kept["metadata"] = json!({
            "labels": text(template.pointer("/metadata/labels")),
            "annotations": text(template.pointer("/metadata/annotations")),
        });
    }
    kept
}

/// Returns what each Pod requests that is to get a partition of its own. `None`: the Workload has
/// no quota, or a flavor is not known yet.
pub fn slots(
    workload: &Workload,
    flavors: &BTreeMap<Box<str>, ResourceFlavorSpec>,
) -> Option<Vec<Slot>> {
    let updates = updates::updates(workload, flavors)?;
    let admission = workload.status.as_ref()?.admission.as_ref()?;
    let mut slots = Vec::new();
    for set in &workload.spec.pod_sets {
        let Ok(Some(PodRequest::New(request))) = PodRequest::of(&set.template) else {
            continue;
        };
        let mut assignments = admission.pod_set_assignments.iter();
        let assigned = assignments.find(|one| one.name == set.name);
        let count = assigned.and_then(|one| one.count).unwrap_or(set.count);
        let mut node_selector = text(set.template.pointer("/spec/nodeSelector"));
        if let Some(update) = updates.iter().find(|one| one.name == set.name) {
            node_selector.extend(update.node_selector.clone());
        }
        for _ in 0..count {
            slots.push(Slot {
                index: u32::try_from(slots.len()).ok()?,
                pod_set: set.name.clone(),
                ipus: request.ipus,
                node_selector: node_selector.clone(),
                owner_metadata: owner_metadata(set),
            });
            if slots.len() > super::SLOTS_MAX {
                return Some(slots);
            }
        }
    }
    Some(slots)
}

fn owner_metadata(set: &PodSet) -> OwnerMetadata {
    let template = &set.template;
    let priority = template.pointer("/spec/priorityClassName");
    OwnerMetadata {
        labels: bounded_labels(&text(template.pointer("/metadata/labels"))),
        annotations: bounded_annotations(&text(template.pointer("/metadata/annotations"))),
        priority_class_name: priority.and_then(Value::as_str).map(ToOwned::to_owned),
    }
}

/// The entries of an object that are texts.
fn text(object: Option<&Value>) -> BTreeMap<String, String> {
    let object = object.and_then(Value::as_object);
    let entries = object.into_iter().flatten();
    let entries =
        entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    entries.collect()
}

/// The IPUPartition of a slot.
pub fn partition(workload: &Workload, slot: &Slot) -> Option<IPUPartition> {
    let metadata = &workload.metadata;
    let owner = PartitionOwner {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "Workload".to_owned(),
        namespace: metadata.namespace.clone()?,
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
    };
    let labels = labels::managed(labels::WORKLOAD_UID_LABEL, &owner.uid);
    let spec = IPUPartitionSpec {
        owner,
        slot: slot.index,
        ipus: slot.ipus,
        gcds: 1,
        options: PartitionOptions {
            // As that of a native Pod, which cannot move to another V-IPU controller.
            pinned: true,
            node_selector: slot.node_selector.clone(),
            ..PartitionOptions::default()
        },
        owner_metadata: slot.owner_metadata.clone(),
        reset_generation: 0,
    };
    Some(new_partition(spec, Some(labels)))
}
