//! Pure: the patch of a Pod that requests IPUs: scheduling gate, label, environment, and the
//! defaults of the guests.

use ipu_api::labels::{
    IPU_RESOURCE, NATIVE_POD_LABEL, PARTITION_GATE, PARTITION_ID_LABEL, VIPU_HOST_ANNOTATION,
    VIPU_PORT_ANNOTATION, VIPU_TIMEOUT,
};
use ipu_api::pod_request::{NewPartition, PodRequest};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation};
use serde_json::{Value, json};

use super::shown;

/// The parts of an IPUJob that it shares with the Pod that it shows, and that guests may change.
const SHARED: [&str; 2] = ["/metadata/labels", "/metadata/annotations"];

/// The variable with the GCD.
const GCD: &str = "IPUOF_VIPU_API_GCD_ID";

/// The defaults leave a size that no Pod can request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a defaulting guest set spec.ipusPerJobInstance to {0}, which is not a whole number from 1 in quotes; ask an \
     admin to correct the guest"
)]
pub(super) struct SizeError(Value);

/// Returns the additions to every Pod that requests IPUs. Fields that the Pod has stay unchanged.
pub(super) fn additions(pod: &Value, request: &PodRequest) -> Vec<PatchOperation> {
    let mut operations: Vec<PatchOperation> = label(pod).into_iter().collect();
    let gates = pod.pointer("/spec/schedulingGates");
    match gates.and_then(Value::as_array) {
        Some(gates) if gates.iter().any(|gate| gate["name"] == PARTITION_GATE) => {}
        Some(_) => operations.push(add(
            ["spec", "schedulingGates", "-"],
            json!({"name": PARTITION_GATE}),
        )),
        None => operations.push(add(
            ["spec", "schedulingGates"],
            json!([{"name": PARTITION_GATE}]),
        )),
    }
    let variables = variables(request.gcd());
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        for (index, container) in containers.enumerate() {
            operations.extend(environment(list, index, container, &variables));
        }
    }
    operations
}

/// Returns a Pod without the gate and the variables that [`additions`] gives it: rules are about
/// what its user has written.
pub(super) fn without_additions(mut pod: Value, gcd: u32) -> Value {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return pod;
    };
    if let Some(gates) = spec
        .get_mut("schedulingGates")
        .and_then(Value::as_array_mut)
    {
        gates.retain(|gate| gate["name"] != PARTITION_GATE);
        if gates.is_empty() {
            spec.remove("schedulingGates");
        }
    }
    let added = variables(gcd);
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) else {
                continue;
            };
            env.retain(|variable| added.iter().all(|(_, ours)| variable != ours));
            if let (true, Some(container)) = (env.is_empty(), container.as_object_mut()) {
                container.remove("env");
            }
        }
    }
    pod
}

/// The whole patch, after the guests: `job` is the IPUJob of the Pod with their changes.
pub(super) fn finished(
    mut operations: Vec<PatchOperation>,
    changes: Patch,
    job: &Value,
    new: &NewPartition,
) -> Result<Patch, SizeError> {
    let is_shared = |operation: &PatchOperation| {
        let path = operation.path().as_str();
        SHARED.iter().any(|shared| path.starts_with(shared))
    };
    operations.extend(changes.0.into_iter().filter(is_shared));
    operations.extend(label(job));
    let ipus =
        shown::ipus(job).ok_or_else(|| SizeError(job["spec"]["ipusPerJobInstance"].clone()))?;
    if ipus != new.ipus {
        operations.extend(size(job, new, ipus));
    }
    Ok(Patch(operations))
}

/// Marks the object as a native Pod, where it is not yet.
fn label(object: &Value) -> Option<PatchOperation> {
    match object["metadata"]["labels"].as_object() {
        Some(labels) if labels.get(NATIVE_POD_LABEL) == Some(&json!("true")) => None,
        Some(_) => Some(add(["metadata", "labels", NATIVE_POD_LABEL], json!("true"))),
        None => Some(add(
            ["metadata", "labels"],
            json!({NATIVE_POD_LABEL: "true"}),
        )),
    }
}

/// Requests this number of IPUs in each place where the Pod requests some.
fn size(job: &Value, new: &NewPartition, ipus: u32) -> Vec<PatchOperation> {
    let mut operations = Vec::new();
    let ipus = json!(ipus.to_string());
    if new.is_annotated {
        let annotations = job["metadata"]["annotations"].as_object();
        operations.push(match annotations {
            Some(_) => add(["metadata", "annotations", IPU_RESOURCE], ipus.clone()),
            None => add(["metadata", "annotations"], json!({IPU_RESOURCE: ipus})),
        });
    }
    if let Some(index) = new.container {
        let resources =
            &job["spec"]["workers"]["template"]["spec"]["containers"][index]["resources"];
        let index = index.to_string();
        // The API server has set the request to the limit, and refuses a Pod in which they differ.
        for part in ["limits", "requests"] {
            if resources[part].get(IPU_RESOURCE).is_some() {
                let path = [
                    "spec",
                    "containers",
                    &index,
                    "resources",
                    part,
                    IPU_RESOURCE,
                ];
                operations.push(add(path, ipus.clone()));
            }
        }
    }
    operations
}

/// The variables of an IPUJob's worker. Environment cannot change after the creation of a Pod: the
/// values are references to labels and annotations that the operator sets before the Pod is
/// scheduled.
fn variables(gcd: u32) -> [(&'static str, Value); 5] {
    let reference = |list: &str, key: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.{list}['{key}']")}});
    let variable = |name: &'static str, key: &str, value: Value| {
        let mut variable = json!({"name": name});
        variable[key] = value;
        (name, variable)
    };
    let of_annotation = |name, key| variable(name, "valueFrom", reference("annotations", key));
    [
        of_annotation("IPUOF_VIPU_API_HOST", VIPU_HOST_ANNOTATION),
        of_annotation("IPUOF_VIPU_API_PORT", VIPU_PORT_ANNOTATION),
        variable(
            "IPUOF_VIPU_API_PARTITION_ID",
            "valueFrom",
            reference("labels", PARTITION_ID_LABEL),
        ),
        variable("IPUOF_VIPU_API_TIMEOUT", "value", json!(VIPU_TIMEOUT)),
        variable(GCD, "value", json!(gcd.to_string())),
    ]
}

/// Whether a container has a variable of the operator: a reference to the label with the partition.
pub(super) fn refers_to_partition(container: &Value) -> bool {
    let path = format!("metadata.labels['{PARTITION_ID_LABEL}']");
    let mut variables = container["env"].as_array().into_iter().flatten();
    variables.any(|variable| variable["valueFrom"]["fieldRef"]["fieldPath"] == *path)
}

/// Adds the variables before those of the container, so that these can refer to them. A variable
/// that the container sets itself stays as it is. The GCD of a copied Pod is not of its own.
fn environment(
    list: &str,
    index: usize,
    container: &Value,
    variables: &[(&str, Value)],
) -> Vec<PatchOperation> {
    let index = index.to_string();
    let Some(own) = container["env"].as_array() else {
        let all: Vec<&Value> = variables.iter().map(|(_, variable)| variable).collect();
        return vec![add(["spec", list, &index, "env"], json!(all))];
    };
    let outdated = variables.iter().filter_map(|(name, variable)| {
        let of_a_copy = *name == GCD && refers_to_partition(container);
        let found = own
            .iter()
            .position(|set| of_a_copy && set["name"] == *name)?;
        (own[found] != *variable).then(|| {
            let path = PointerBuf::from_tokens(["spec", list, &index, "env", &found.to_string()]);
            PatchOperation::Replace(ReplaceOperation {
                path,
                value: variable.clone(),
            })
        })
    });
    let missing = variables
        .iter()
        .filter(|(name, _)| own.iter().all(|set| set["name"] != *name))
        .rev()
        .map(|(_, variable)| add(["spec", list, &index, "env", "0"], variable.clone()));
    outdated.chain(missing).collect()
}

fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(path),
        value,
    })
}

#[cfg(test)]
mod tests;
