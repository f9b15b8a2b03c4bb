//! IPUJobs as users create, scale and delete them.

use std::sync::Arc;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_jobs::build::{AgentDelivery, PodSettings};
use ipu_jobs::validate::{self, ValidJob};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use super::job_server::{JobObject, NAMESPACE};
use super::kubelet::DELETION;
use super::owners::Job;
use super::world::World;

/// The largest partition that a job may request.
const IPUS_MAX: u32 = 256;

/// The settings of Pods.
pub(super) fn pod_settings() -> PodSettings {
    PodSettings {
        worker_host_network: false,
        avoid_failed_nodes: false,
        launcher_image: "ipu-operator:simulated".to_owned(),
        launcher_image_pull_policy: None,
        agent_delivery: AgentDelivery::Init,
        launcher_resources: None,
        launcher_policy: None,
        start_timeout: Some(std::time::Duration::from_mins(10)),
    }
}

/// Reads the IPUJob of an owner, as the operator does.
fn valid(job: &Job, generation: i64) -> ValidJob {
    // A job that never ends by itself does not fail after many disruptions either.
    let (restart, limit) = match job.runs {
        Some(_) => ("OnFailure", 6),
        None => ("Always", 100),
    };
    let mut object = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {
            "name": job.name, "namespace": NAMESPACE, "uid": job.uid, "generation": generation,
        },
        "spec": {
            "jobInstances": job.slots,
            "ipusPerJobInstance": job.ipus.to_string(),
            "workersPerJobInstance": job.workers.to_string(),
            "restartPolicy": {"type": restart, "backOffLimit": limit},
            "cleanPodPolicy": "Workers",
            "ttlSecondsAfterFinished": job.ttl,
            "workers": {"template": {"spec": {
                "nodeSelector": job.node_selector(),
                "containers": [{"name": "main", "image": "program:1"}],
            }}},
        },
    });
    if job.gang.is_some() {
        object["spec"]["launcher"] = json!({"command": ["mpirun"]});
    }
    validate::read(&object, IPUS_MAX).unwrap_or_else(|error| panic!("{object}: {error}"))
}

impl World {
    /// A user creates the IPUJob of an owner.
    pub(super) fn submit_job(&mut self, job: usize) {
        let owner = &self.jobs[job];
        let object = JobObject {
            metadata: ObjectMeta {
                name: Some(owner.name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                uid: Some(owner.uid.clone()),
                generation: Some(1),
                creation_timestamp: Some(Time(self.timestamp())),
                ..ObjectMeta::default()
            },
            valid: Arc::new(valid(owner, 1)),
            status: IPUJobStatus::default(),
        };
        self.server.put_job(job, object);
    }

    /// A user changes the number of instances of a job.
    pub(super) fn scale_job(&mut self, job: usize) {
        let owner = &self.jobs[job];
        let changed = self.server.change_job(job, None, |object| {
            let generation = object.metadata.generation.unwrap_or(0) + 1;
            object.metadata.generation = Some(generation);
            object.valid = Arc::new(valid(owner, generation));
        });
        changed.expect("no version is required");
    }

    /// A user deletes a job, or an owner of another kind.
    pub(super) fn delete_job(&mut self, job: usize) {
        if self.jobs[job].is_foreign {
            return;
        }
        let now = Time(self.timestamp());
        let changed = self.server.change_job(job, None, |object| {
            object.metadata.deletion_timestamp.get_or_insert(now);
        });
        if changed.expect("no version is required").is_none() {
            self.job_deleted(job);
        }
    }

    /// A job is gone without its finalizer. The garbage collector deletes its Pods.
    pub(super) fn job_vanishes(&mut self, job: usize) {
        self.server.remove_job(job);
        let pods = self.server.pods_of_job(job);
        let pods: Vec<u64> = pods.map(|(number, _)| number).collect();
        for pod in pods {
            self.request_pod_deletion(pod, DELETION);
        }
    }
}
