//! Pure: how large a job is: instances, IPUs, workers and model replicas.

use serde_json::Value;

use super::fields::{at, broken, has_launcher, number_text, whole};
use super::{Settings, Violation};

/// Most Pods that one job may have: what Kubernetes is built for in a whole cluster.
const PODS_MAX: u64 = 150_000;

/// Size of a job, in numbers that keep every rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Instances; each has a partition of its own. 0 only without launcher and interactive.
    pub instances: u32,
    /// IPUs of each instance's partition: a power of two.
    pub ipus: u32,
    /// Worker Pods of each instance, which is the number of GCDs of its partition.
    pub workers: u32,
    /// Model replicas of each worker.
    pub replicas_per_worker: u32,
}

impl Sizing {
    /// Model replicas of one partition.
    pub fn replicas(self) -> u32 {
        self.workers * self.replicas_per_worker
    }

    /// Worker Pods over all instances.
    pub fn total_workers(self) -> u32 {
        self.instances * self.workers
    }
}

/// Collects violations while values are read.
#[derive(Default)]
struct Reader(Vec<Violation>);

impl Reader {
    /// The value read, or none with the violation kept.
    fn take<T>(&mut self, read: Result<Option<T>, Violation>) -> Option<T> {
        read.unwrap_or_else(|violation| {
            self.0.push(violation);
            None
        })
    }

    /// As `take`, for a field that must be there.
    fn require<T>(
        &mut self,
        read: Result<Option<T>, Violation>,
        field: &str,
        advice: &str,
    ) -> Option<T> {
        if matches!(read, Ok(None)) {
            self.0.push(Violation {
                field: field.to_owned(),
                message: format!("is missing; {advice}"),
            });
        }
        self.take(read)
    }
}

/// Reads the sizing fields of a spec and checks every rule on them.
pub(super) fn read(spec: &Value, settings: Settings) -> Result<Sizing, Vec<Violation>> {
    let mut reader = Reader::default();
    let instances = reader.require(
        whole(spec, &["jobInstances"], "spec.jobInstances", 0),
        "spec.jobInstances",
        "say how many instances of the job run, such as 1",
    );
    let ipus = reader.require(
        number_text(spec, "ipusPerJobInstance"),
        "spec.ipusPerJobInstance",
        "say how many IPUs each instance gets, such as \"4\"",
    );
    let before = reader.0.len();
    let workers = workers(spec, &mut reader);
    let replicas = reader.take(number_text(spec, "modelReplicasPerWorker"));
    let shape_is_known = reader.0.len() == before;
    if let Some(ipus) = ipus {
        reader.0.extend(check_ipus(spec, ipus, settings));
        reader.0.extend(check_alpha_5(spec, ipus));
        if shape_is_known {
            let shape = (workers, replicas.unwrap_or(1));
            reader.0.extend(check_division(spec, ipus, shape));
        }
    }
    if let Some(instances) = instances {
        reader.0.extend(check_instances(spec, instances, workers));
    }
    match (instances, ipus) {
        (Some(instances), Some(ipus)) if reader.0.is_empty() => Ok(Sizing {
            instances,
            ipus,
            workers,
            replicas_per_worker: replicas.unwrap_or(1),
        }),
        _ => Err(reader.0),
    }
}

/// Meaning of each sizing field, so that two ways to write the same size are no change. None
/// where a field is wrong.
pub(super) fn amounts(spec: &Value) -> [(&'static str, Option<u32>); 3] {
    let mut reader = Reader::default();
    let workers = workers(spec, &mut reader);
    let workers = reader.0.is_empty().then_some(workers);
    [
        (
            "ipusPerJobInstance",
            number_text(spec, "ipusPerJobInstance").ok().flatten(),
        ),
        ("workersPerJobInstance", workers),
        (
            "modelReplicasPerWorker",
            number_text(spec, "modelReplicasPerWorker")
                .ok()
                .map(|replicas| replicas.unwrap_or(1)),
        ),
    ]
}

/// Workers of each instance: `workersPerJobInstance`, which wins, its misspelling, or
/// `workers.replicas`. Keeps a violation where two of them disagree.
fn workers(spec: &Value, reader: &mut Reader) -> u32 {
    let named = reader.take(number_text(spec, "workersPerJobInstance"));
    let misspelt = reader.take(number_text(spec, "workerPerJobInstance"));
    let replicas = reader.take(whole(
        spec,
        &["workers", "replicas"],
        "spec.workers.replicas",
        1,
    ));
    let conflict = |field: &str, other: u32, named: u32| Violation {
        field: field.to_owned(),
        message: format!(
            "is {other}, but spec.workersPerJobInstance is \"{named}\" and takes precedence; \
             remove {field}"
        ),
    };
    match (named, misspelt) {
        (Some(named), Some(misspelt)) if named != misspelt => {
            reader
                .0
                .push(conflict("spec.workerPerJobInstance", misspelt, named));
        }
        _ => {}
    }
    match (named.or(misspelt), replicas) {
        (Some(named), Some(replicas)) if replicas > 1 && replicas != named => {
            reader
                .0
                .push(conflict("spec.workers.replicas", replicas, named));
        }
        _ => {}
    }
    named.or(misspelt).or(replicas).unwrap_or(1)
}

fn check_ipus(spec: &Value, ipus: u32, settings: Settings) -> Option<Violation> {
    let limit = settings.max_ipus_per_job;
    let found = at(spec, &["ipusPerJobInstance"])?;
    let rule = if ipus > limit {
        let most = 1 << limit.ilog2();
        format!(
            "is more than the {limit} IPUs that one job instance may have here; ask for \
             \"{most}\" or fewer, or have the operator's limit (maxIpusPerJob) raised"
        )
    } else if !ipus.is_power_of_two() {
        let below = 1 << ipus.ilog2();
        let above = below << 1;
        if above <= limit {
            format!("is not a power of two; ask for \"{below}\" or \"{above}\"")
        } else {
            format!("is not a power of two; ask for \"{below}\"")
        }
    } else {
        return None;
    };
    Some(broken("spec.ipusPerJobInstance", found, &rule))
}

/// The fields of alpha-5 may stay beside the new ones as long as they mean the same.
fn check_alpha_5(spec: &Value, ipus: u32) -> Option<Violation> {
    let replicas = number_text(spec, "modelReplicas").ok().flatten()?;
    let each = number_text(spec, "ipusPerModelReplica").ok().flatten()?;
    let product = u64::from(replicas) * u64::from(each);
    (product != u64::from(ipus)).then(|| Violation {
        field: "spec.modelReplicas".to_owned(),
        message: format!(
            "\"{replicas}\" times spec.ipusPerModelReplica \"{each}\" is {product}, but \
             spec.ipusPerJobInstance is \"{ipus}\"; remove the two deprecated fields"
        ),
    })
}

fn check_division(spec: &Value, ipus: u32, (workers, replicas): (u32, u32)) -> Option<Violation> {
    let found = at(spec, &["ipusPerJobInstance"])?;
    let parts = u64::from(workers) * u64::from(replicas);
    (u64::from(ipus) % parts != 0).then(|| {
        let rule = format!(
            "cannot be divided among {workers} workers with {replicas} model replicas each; make \
             the product of spec.workersPerJobInstance and spec.modelReplicasPerWorker ({parts}) \
             a divisor of it"
        );
        broken("spec.ipusPerJobInstance", found, &rule)
    })
}

fn check_instances(spec: &Value, instances: u32, workers: u32) -> Option<Violation> {
    let pods = u64::from(instances) * u64::from(workers);
    let message = if instances == 0 && has_launcher(spec) {
        "0 leaves the launcher without workers; ask for 1 or more, or delete the job".to_owned()
    } else if pods > PODS_MAX {
        format!(
            "{instances} instances of {workers} workers are {pods} Pods, and a job may have at \
             most {PODS_MAX}; ask for fewer instances"
        )
    } else {
        return None;
    };
    Some(Violation {
        field: "spec.jobInstances".to_owned(),
        message,
    })
}
