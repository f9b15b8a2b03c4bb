//! Pure: the IPUJobs that have ended, as CSV that `ipu-operator policy evaluate` replays.

use std::fmt::Write as _;

use ipu_api::ipujob_status::{IPUJobStatus, JobAccounting};
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::Value;

use super::Since;

/// The columns that `policy evaluate` reads.
const HEADER: &str = "namespace,arrival_seconds,ipus,duration_seconds,gang\n";

/// Largest number of instances of a job.
const INSTANCES_MAX: u64 = 1_024;

/// Condition of an IPUJob: every instance has its partition.
const PARTITIONS_READY: &str = "PartitionsReady";

/// The jobs of a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobHistory {
    /// Those that have ended, as CSV.
    pub csv: String,
    /// Jobs without an end, or without a time in which they had their partitions.
    pub left_out: usize,
}

/// A job that has ended.
#[derive(Clone, Debug)]
struct Ended {
    namespace: String,
    name: String,
    created: Timestamp,
    ipus: u64,
    instances: u64,
    /// Whether its partitions are useful only together.
    is_gang: bool,
    /// Seconds from the time at which it had its partitions until its end.
    seconds: i64,
}

/// Collects the jobs of a time one after the other, and keeps of each only what its line needs.
#[derive(Clone, Debug)]
pub struct JobCollector {
    begin: Option<Timestamp>,
    now: Timestamp,
    ended: Vec<Ended>,
    left_out: usize,
}

impl JobCollector {
    /// No jobs yet, of those that were created since a time before `now`.
    pub fn new(since: Since, now: Timestamp) -> Self {
        Self {
            begin: since.begin(now),
            now,
            ended: Vec::new(),
            left_out: 0,
        }
    }

    /// Adds a job, if it was created in the time.
    pub fn add(&mut self, job: &DynamicObject) {
        let created = job.metadata.creation_timestamp.as_ref();
        let Some(created) = created.map(|time| time.0) else {
            self.left_out += 1;
            return;
        };
        if self.begin.is_some_and(|begin| created < begin) {
            return;
        }
        match read(job, created) {
            Some(job) => self.ended.push(job),
            None => self.left_out += 1,
        }
    }

    /// The jobs in the order of their creation. Instances without a launcher are independent, so
    /// each is a job of its own.
    pub fn history(mut self) -> JobHistory {
        let order = |job: &Ended| (job.created, job.namespace.clone(), job.name.clone());
        self.ended.sort_by_cached_key(order);
        let first = self.ended.first().map_or(self.now, |job| job.created);
        let mut csv = HEADER.to_owned();
        for job in &self.ended {
            let arrival = job.created.as_second() - first.as_second();
            let (lines, gang) = if job.is_gang {
                (1, job.instances)
            } else {
                (job.instances, 1)
            };
            let (namespace, ipus, seconds) = (&job.namespace, job.ipus, job.seconds);
            for _ in 0..lines {
                // Writing to a String cannot fail.
                let _ = writeln!(csv, "{namespace},{arrival},{ipus},{seconds},{gang}");
            }
        }
        JobHistory {
            csv,
            left_out: self.left_out,
        }
    }
}

/// Reads a job. `None` if it has not ended, or never had its partitions.
fn read(job: &DynamicObject, created: Timestamp) -> Option<Ended> {
    let spec = job.data.get("spec")?;
    let status = job.data.get("status")?;
    let status: IPUJobStatus = serde_json::from_value(status.clone()).ok()?;
    let end = status.completion_time.as_ref()?.0;
    let accounting = status.accounting.as_ref();
    let seconds = match accounting.filter(|one| is_complete(one, created)) {
        // The rest of them.
        Some(one) => one.total() - one.waiting - one.forming - one.suspended,
        None => end.as_second() - partitions_ready(&status)?.as_second(),
    };
    let instances = number(spec.get("jobInstances")?)?;
    let is_set = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    let job = Ended {
        namespace: job.metadata.namespace.clone()?,
        name: job.metadata.name.clone()?,
        created,
        ipus: number(spec.get("ipusPerJobInstance")?)?,
        instances,
        is_gang: is_set("launcher") || is_set("interactive"),
        seconds,
    };
    let is_sound = job.ipus > 0 && (1..=INSTANCES_MAX).contains(&instances) && seconds > 0;
    is_sound.then_some(job)
}

/// Whether an accounting covers the whole life of its job: that of a job of an earlier version of
/// the operator does not.
fn is_complete(one: &JobAccounting, created: Timestamp) -> bool {
    one.total() == one.until.0.as_second() - created.as_second()
}

/// Since when every instance last had its partition.
fn partitions_ready(status: &IPUJobStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|one| one.type_ == PARTITIONS_READY && one.status == "True")?;
    Some(ready.last_transition_time.as_ref()?.0)
}

/// A number, which a spec may write as a text.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T00:00:00Z".parse().unwrap()
    }

    /// A job that was created at an hour and a minute, with this spec and status.
    fn job(name: &str, created: &str, spec: &Value, status: &Value) -> DynamicObject {
        let mut job = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUJob",
            "metadata": {
                "name": name, "namespace": "team",
                "creationTimestamp": format!("2026-01-01T{created}:00Z"),
            },
            "spec": {"jobInstances": 1, "ipusPerJobInstance": "4"},
            "status": {"launcherStatus": "Completed", "desiredReplicas": 1, "lastMessage": ""},
        });
        for (field, values) in [("spec", spec), ("status", status)] {
            for (name, value) in values.as_object().unwrap() {
                job[field][name] = value.clone();
            }
        }
        serde_json::from_value(job).unwrap()
    }

    /// A status of a job that ended at this hour and minute, with these seconds.
    fn ended(at: &str, seconds: &Value) -> Value {
        let at = format!("2026-01-01T{at}:00Z");
        let mut accounting = seconds.clone();
        accounting["until"] = json!(at);
        json!({"completionTime": at, "accounting": accounting})
    }

    fn lines(jobs: &[DynamicObject], since: Since) -> (Vec<String>, usize) {
        let mut collector = JobCollector::new(since, now());
        for job in jobs {
            collector.add(job);
        }
        let history = collector.history();
        let mut lines = history.csv.lines().map(ToOwned::to_owned);
        assert_eq!(lines.next().unwrap() + "\n", HEADER);
        (lines.collect(), history.left_out)
    }

    #[test]
    fn a_job_lasts_from_its_partitions_to_its_end() {
        let waited = json!({"waiting": 50, "forming": 10, "starting": 20, "running": 40});
        let failed = json!({"wasted": 20, "resetting": 6, "idle": 9, "restarting": 5, "running": 20, "suspended": 60});
        let launcher = json!({"jobInstances": 2, "launcher": {"command": ["mpirun"]}});
        let elastic = json!({"jobInstances": 2, "ipusPerJobInstance": 16, "launcher": null});
        let none = json!({});
        // The accounting began with an update of the operator.
        let mut partial = ended("09:10", &json!({"running": 60}));
        partial["conditions"] = json!([{
            "type": "PartitionsReady", "status": "True", "lastTransitionTime": "2026-01-01T09:01:00Z",
        }]);
        let jobs = [
            job("b", "09:00", &none, &partial),
            job("d", "10:00", &elastic, &ended("10:02", &failed)),
            job("a", "08:00", &none, &ended("08:02", &waited)),
            job("c", "10:00", &launcher, &ended("10:02", &waited)),
        ];
        let expected = [
            "team,0,4,60,1",
            "team,3600,4,540,1",
            "team,7200,4,60,2",
            "team,7200,16,60,1",
            "team,7200,16,60,1",
        ];
        let expected = expected.map(ToOwned::to_owned).to_vec();
        assert_eq!(lines(&jobs, Since::All), (expected, 0));
        let last = vec!["team,0,4,60,2".to_owned()];
        let (found, _) = lines(&jobs, Since::Hours(14));
        assert_eq!(found[..1], last);
    }

    #[test]
    fn a_job_without_an_end_or_without_partitions_is_left_out() {
        let none = json!({});
        let unserved = ended("08:02", &json!({"waiting": 120}));
        let served = ended("08:02", &json!({"running": 120}));
        let jobs = [
            job("running", "08:00", &none, &none),
            job("unserved", "08:00", &none, &unserved),
            job("scaled", "08:00", &json!({"jobInstances": 0}), &served),
            job(
                "text",
                "08:00",
                &json!({"ipusPerJobInstance": "x"}),
                &served,
            ),
        ];
        assert_eq!(lines(&jobs, Since::All), (Vec::new(), 4));
    }
}
