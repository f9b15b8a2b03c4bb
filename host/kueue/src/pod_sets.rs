//! Pure: the pod sets of an IPUJob: its Pods as Kueue counts them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipupartition::ControllerRef;
use ipu_api::labels::IPU_RESOURCE;
use ipu_api::queueing::{LAUNCHER, WORKERS};
use ipu_jobs::build::{AgentDelivery, PodSettings, launcher, workers};
use ipu_jobs::facts::partition::PlacedPartition;
use ipu_jobs::validate::ValidJob;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value, json};

use crate::objects::PodSet;

/// Fields of a Pod that decide which quota and which nodes it needs.
const POD_FIELDS: [&str; 7] = [
    "nodeSelector",
    "affinity",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "overhead",
    "resources",
];

/// Fields of a container that decide which quota it needs.
const CONTAINER_FIELDS: [&str; 3] = ["name", "resources", "restartPolicy"];

/// Returns the pod sets of a job: its launcher, and its workers with their share of the IPUs.
pub fn pod_sets(job: &ValidJob, settings: &PodSettings) -> Vec<PodSet> {
    let nowhere = nowhere();
    // The init container requests nothing more than the others, and a change of the Pods would stop
    // all running jobs.
    let settings = PodSettings {
        agent_delivery: AgentDelivery::Init,
        ..settings.clone()
    };
    let launcher = job.launcher.as_ref().map(|command| {
        // The admin's small default does not count: its change would stop all running jobs.
        let settings = PodSettings {
            launcher_resources: None,
            ..settings.clone()
        };
        let pod = launcher::launcher(job, command, &settings, (&nowhere, 0));
        pod_set(LAUNCHER, 1, pod)
    });
    let mut worker = workers::worker(job, &settings, (0, 0, 0), &nowhere);
    request_ipus(&mut worker, ipus_of_worker(job));
    let count = job.instances.saturating_mul(job.size.workers);
    let workers = pod_set(WORKERS, count, worker);
    launcher.into_iter().chain([workers]).collect()
}

/// Returns the part of a template that decides which quota and which nodes a Pod needs. Two
/// templates that are equal in it are the same for Kueue.
pub fn relevant(template: &Value) -> Value {
    let Some(spec) = template.get("spec").and_then(Value::as_object) else {
        return json!({"spec": {}});
    };
    let mut kept = some(spec, &POD_FIELDS);
    for list in ["initContainers", "containers"] {
        if let Some(containers) = spec.get(list).and_then(Value::as_array) {
            let containers = containers.iter().filter_map(Value::as_object);
            let containers: Vec<_> = containers.map(|one| some(one, &CONTAINER_FIELDS)).collect();
            kept.insert(list.to_owned(), json!(containers));
        }
    }
    json!({"spec": kept})
}

/// IPUs of a worker. Sizes are powers of two; a partition with more workers than IPUs counts as one
/// IPU for each worker.
fn ipus_of_worker(job: &ValidJob) -> u32 {
    job.size.ipus.div_ceil(job.size.workers.max(1))
}

fn request_ipus(pod: &mut Pod, ipus: u32) {
    let spec = pod.spec.get_or_insert_default();
    if let Some(first) = spec.containers.first_mut() {
        let resources = first.resources.get_or_insert_default();
        for list in [&mut resources.requests, &mut resources.limits] {
            let ipus = Quantity(ipus.to_string());
            list.get_or_insert_default()
                .insert(IPU_RESOURCE.to_owned(), ipus);
        }
    }
}

fn pod_set(name: &str, count: u32, pod: Pod) -> PodSet {
    let mut spec = pod.spec.unwrap_or_default();
    remove_nowhere(&mut spec);
    PodSet {
        name: name.to_owned(),
        count,
        template: relevant(&json!({"spec": spec})),
    }
}

/// The partition of a Pod that has none yet. Its label of nodes is removed again.
fn nowhere() -> PlacedPartition {
    PlacedPartition {
        controller: Arc::new(ControllerRef {
            name: String::new(),
            host: String::new(),
            port: 0,
            label_key: String::new(),
            label_value: String::new(),
        }),
        id: String::new(),
        resets: 0,
    }
}

fn remove_nowhere(spec: &mut PodSpec) {
    let selector = spec.node_selector.take().unwrap_or_default();
    let selector: BTreeMap<_, _> = selector
        .into_iter()
        .filter(|(key, _)| !key.is_empty())
        .collect();
    spec.node_selector = (!selector.is_empty()).then_some(selector);
}

fn some(map: &Map<String, Value>, fields: &[&str]) -> Map<String, Value> {
    let fields = fields.iter().filter_map(|field| {
        let value = map.get(*field).filter(|value| !is_empty(value))?;
        Some(((*field).to_owned(), value.clone()))
    });
    fields.collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
