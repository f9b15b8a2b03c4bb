//! Pure: reconstructs a job whose spec is unreadable from its objects, so that it can finish and
//! release its partitions.

use ipu_api::ipujob::CleanPodPolicy;
use ipu_api::naming;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::facts::Observed;
use super::job_conditions;
use super::raw::RawJob;
use super::restart::RestartRule;
use super::rolling_update::Strategy;
use super::validate::{Size, Start, Suspension, Template, ValidJob, ValidLauncher, ValidateError};

/// Reconstructs a job whose spec is unreadable: its size from its objects, and its clean-up from
/// the readable fields. Returns `None` if it has no objects and has not finished.
///
/// The operator creates no more objects for such a job, and only lets it finish.
pub fn salvage(job: &RawJob, observed: &Observed, error: ValidateError) -> Option<ValidJob> {
    let Observed {
        pods,
        partitions,
        status,
        ..
    } = observed;
    if pods.is_empty() && partitions.is_empty() && job_conditions::recorded_end(status).is_none() {
        return None;
    }
    let metadata = &job.metadata;
    let name = metadata.name.clone().unwrap_or_default();
    let launcher = naming::launcher(&name);
    let has_launcher = pods.iter().any(|pod| pod.object.name() == launcher)
        || is_set(&job.spec, "launcher")
        || is_set(&job.spec, "interactive");
    let clean_pod_policy: CleanPodPolicy = field(&job.spec, "cleanPodPolicy").unwrap_or_default();
    Some(ValidJob {
        name,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        instances: instances(observed),
        size: size(observed),
        launcher: has_launcher.then(ValidLauncher::default),
        template: Template::default(),
        clean_pod_policy,
        // The operator cannot build Pods of another run.
        restart: RestartRule::new(None, clean_pod_policy),
        strategy: Strategy::Recreate,
        failure_policy: field(&job.spec["workers"], "failurePolicy").unwrap_or_default(),
        suspension: match field(&job.spec, "suspend") {
            Some(true) => Suspension::Suspended,
            Some(false) | None => Suspension::Active,
        },
        is_admitted: false,
        pod_set_updates: Vec::new(),
        active_deadline_seconds: field(&job.spec, "activeDeadlineSeconds"),
        ttl_seconds_after_finished: field(&job.spec, "ttlSecondsAfterFinished"),
        reconfigurable: false,
        relocatable: false,
        start: Start::Unreadable(error),
    })
}

/// Returns a field of a spec, if it is readable.
fn field<T: DeserializeOwned>(spec: &Value, name: &str) -> Option<T> {
    serde_json::from_value(spec.get(name)?.clone()).ok()
}

fn is_set(spec: &Value, name: &str) -> bool {
    spec.get(name).is_some_and(|value| !value.is_null())
}

/// Returns the highest index of an existing or finished instance, plus one.
fn instances(observed: &Observed) -> u32 {
    let of_pods = observed.pods.iter().filter_map(|pod| pod.instance);
    let of_partitions = observed.partitions.iter().map(|found| found.slot);
    let run = observed.status.run.as_ref();
    let ended = run.into_iter().flat_map(|run| run.ended.keys());
    let ended = ended.filter_map(|index| index.parse().ok());
    let last = of_pods.chain(of_partitions).chain(ended).max();
    last.map_or(0, |last| last.saturating_add(1))
}

/// Returns the size of the job's partitions, which never changes. Without a partition, the size is
/// the number of Pods of an instance.
fn size(observed: &Observed) -> Size {
    if let Some(found) = observed.partitions.first() {
        return Size {
            ipus: found.ipus,
            workers: found.gcds.max(1),
            replicas_per_worker: 1,
        };
    }
    let instances = || observed.pods.iter().filter_map(|pod| pod.instance);
    let workers =
        instances().map(|instance| instances().filter(|other| *other == instance).count());
    let workers = workers
        .max()
        .and_then(|workers| u32::try_from(workers).ok());
    Size {
        ipus: 1,
        workers: workers.unwrap_or(1),
        replicas_per_worker: 1,
    }
}
