//! Pure: takes the partition of another Pod out of a new one: a Pod that was exported and is
//! applied again, or that `kubectl debug --copy-to` copies, contains what the operator has put into
//! the first one.

use ipu_api::labels::{
    GCD_ANNOTATION, IPU_RESOURCE, NATIVE_POD_LABEL, NODE_LABEL_ANNOTATION, PARTITION_ANNOTATION,
    PARTITION_GATE, PARTITION_ID_LABEL, VIPU_HOST_ANNOTATION, VIPU_PORT_ANNOTATION,
    WORKLOAD_ANNOTATION,
};
use ipu_api::pod_request::{NewPartition, PodRequest};
use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, RemoveOperation};
use serde_json::Value;

use super::patch::refers_to_partition;

/// What a new Pod loses.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Removals {
    /// The removals.
    pub(super) operations: Vec<PatchOperation>,
    /// The warning for the user of a copy.
    pub(super) warning: Option<String>,
}

/// Returns what is to be removed from a new Pod. A Pod that is no copy loses nothing.
pub(super) fn removals(pod: &Value) -> Removals {
    let copy = Copied::of(pod);
    let request = PodRequest::of(pod);
    let has_stale_request = copy.is_for_debugging && is_annotated_only(&request);
    let requests_ipus = !has_stale_request && !matches!(request, Ok(None));
    let mut paths = Vec::new();
    if has_stale_request {
        paths.extend(annotations(
            pod,
            &[IPU_RESOURCE, PARTITION_ANNOTATION, GCD_ANNOTATION],
        ));
    }
    if requests_ipus || copy.is_labelled {
        paths.extend(entries(pod, &["metadata", "labels"], &[PARTITION_ID_LABEL]));
    }
    if copy.is_copy {
        paths.extend(node_selector(pod));
        let set = [
            VIPU_HOST_ANNOTATION,
            VIPU_PORT_ANNOTATION,
            NODE_LABEL_ANNOTATION,
        ];
        paths.extend(annotations(pod, &set));
        paths.extend(annotations(pod, &[WORKLOAD_ANNOTATION]));
    }
    if requests_ipus && copy.is_copy {
        // The API server accepts no gate on a Pod with a node.
        paths.extend(entries(pod, &["spec"], &["nodeName"]));
    }
    if !requests_ipus {
        paths.extend(entries(pod, &["metadata", "labels"], &[NATIVE_POD_LABEL]));
        paths.extend(gate(pod));
    }
    let warning = if has_stale_request {
        Some(WITHOUT_IPUS.to_owned())
    } else {
        request
            .ok()
            .flatten()
            .filter(|_| copy.is_copy)
            .map(|request| with_ipus(&request))
    };
    let remove = |path| PatchOperation::Remove(RemoveOperation { path });
    Removals {
        operations: paths.into_iter().map(remove).collect(),
        warning,
    }
}

/// The warning for a copy whose request is stale.
const WITHOUT_IPUS: &str = "the Pod is a copy without the label graphcore.ai/native-pod, as kubectl debug makes it: it \
                            runs without IPUs. With --keep-labels, a copy requests IPUs of its own";

/// The warning for a copy with a request.
fn with_ipus(request: &PodRequest) -> String {
    match request {
        PodRequest::New(new) => format!(
            "the Pod is a copy of a Pod with a partition: it requests {} IPUs of its own, and waits until they are \
             free",
            new.ipus
        ),
        PodRequest::Existing(existing) => format!(
            "the Pod is a copy of a Pod with a partition: it shares the IPUPartition {}, with GCD {}",
            existing.name, existing.gcd
        ),
    }
}

/// What a Pod has of another one.
struct Copied {
    /// Whether anything of it comes from a Pod with a partition.
    is_copy: bool,
    /// Whether it has the label of a native Pod.
    is_labelled: bool,
    /// Whether it has the annotations of a bound Pod without its labels. No manifest of a user, and
    /// no Pod of a controller, is like this.
    is_for_debugging: bool,
}

impl Copied {
    fn of(pod: &Value) -> Self {
        let metadata = &pod["metadata"];
        let label = |key: &str| metadata["labels"].get(key).is_some();
        let annotation = |key: &str| metadata["annotations"].get(key).is_some();
        let (is_labelled, is_bound) = (label(NATIVE_POD_LABEL), annotation(VIPU_HOST_ANNOTATION));
        let owners = metadata["ownerReferences"].as_array();
        let has_owner = owners.is_some_and(|owners| !owners.is_empty());
        let containers = ["initContainers", "containers"]
            .into_iter()
            .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
        let refers = containers.into_iter().any(refers_to_partition);
        Self {
            is_copy: is_bound || label(PARTITION_ID_LABEL) || refers,
            is_labelled,
            is_for_debugging: is_bound && !is_labelled && !has_owner,
        }
    }
}

/// Whether only annotations request IPUs.
fn is_annotated_only<E>(request: &Result<Option<PodRequest>, E>) -> bool {
    matches!(
        request,
        Ok(Some(
            PodRequest::Existing(_)
                | PodRequest::New(NewPartition {
                    container: None,
                    ..
                })
        ))
    )
}

/// The entry of the node selector that the operator has added to the first Pod.
fn node_selector(pod: &Value) -> Option<PointerBuf> {
    let added = pod["metadata"]["annotations"][NODE_LABEL_ANNOTATION].as_str()?;
    let (key, value) = added.split_once('=')?;
    let is_same = pod["spec"]["nodeSelector"].get(key)? == value;
    is_same.then(|| PointerBuf::from_tokens(["spec", "nodeSelector", key]))
}

/// The gate of the operator, which it removes from no Pod that requests no IPUs.
fn gate(pod: &Value) -> Option<PointerBuf> {
    let gates = pod["spec"]["schedulingGates"].as_array()?;
    let index = gates
        .iter()
        .position(|gate| gate["name"] == PARTITION_GATE)?;
    Some(PointerBuf::from_tokens([
        "spec",
        "schedulingGates",
        &index.to_string(),
    ]))
}

fn annotations(pod: &Value, keys: &[&str]) -> Vec<PointerBuf> {
    entries(pod, &["metadata", "annotations"], keys)
}

/// The paths of those of these keys that a map of the Pod has.
fn entries(pod: &Value, map: &[&str], keys: &[&str]) -> Vec<PointerBuf> {
    let object = map.iter().fold(pod, |object, key| &object[*key]);
    let present = keys.iter().filter(|key| object.get(**key).is_some());
    present
        .map(|key| PointerBuf::from_tokens(map.iter().chain([key]).copied()))
        .collect()
}

#[cfg(test)]
mod tests;
