//! Jobs to test with: one that is fine, and a word for each change.

use ipu_api::ipujob::{
    CleanPodPolicy, IPUJob, IPUJobSpec, Interactive, Launcher, RestartPolicy, RestartPolicyType,
    Workers,
};
use ipu_api::ipujob_status::JobState;
use ipu_api::labels;
use ipu_api::pod_template::PodTemplate;
use serde_json::{Value, json};

use super::world::World;
use crate::build::{AgentDelivery, PodSettings};
use crate::validate::{ValidJob, ValidateError, read};

/// Most IPUs of a partition, in tests.
pub(crate) const MAX_IPUS: u32 = 64;

/// Settings of Pods in tests: those of the demo.
pub(crate) fn settings() -> PodSettings {
    PodSettings {
        worker_host_network: false,
        avoid_failed_nodes: false,
        launcher_image: "ipu-operator.local/ipu-operator:test".to_owned(),
        launcher_image_pull_policy: Some("IfNotPresent".to_owned()),
        agent_delivery: AgentDelivery::Init,
        launcher_resources: None,
        launcher_policy: None,
        start_timeout: Some(std::time::Duration::from_mins(10)),
    }
}

/// The same, with the agent mounted from its image.
pub(crate) fn mounted() -> PodSettings {
    PodSettings {
        agent_delivery: AgentDelivery::Image,
        ..settings()
    }
}

/// A job that is fine, and a word for each change.
pub(crate) trait JobFixture {
    /// A job of one worker on 4 IPUs, after defaulting.
    fn sample() -> Self;
    fn instances(self, instances: i32) -> Self;
    fn ipus(self, ipus: &str) -> Self;
    fn workers(self, workers: &str) -> Self;
    fn replicas_per_worker(self, replicas: &str) -> Self;
    fn launcher(self, command: &[&str]) -> Self;
    fn interactive(self, ttl: i32) -> Self;
    fn suspend(self, suspend: bool) -> Self;
    fn strategy(self, strategy: &Value) -> Self;
    fn clean(self, policy: CleanPodPolicy) -> Self;
    fn restart(self, type_: RestartPolicyType) -> Self;
    /// Merges into the Pod template, by JSON merge patch.
    fn template(self, patch: &Value) -> Self;
    /// The job as the API server holds it.
    fn object(&self) -> Value;
    /// The job in the form that cannot be wrong.
    fn valid(&self) -> ValidJob;
}

impl JobFixture for IPUJob {
    fn sample() -> Self {
        let template = json!({"spec": {"containers": [{"name": "main", "image": "program:1"}]}});
        let mut job = Self::new(
            "sample",
            IPUJobSpec {
                job_instances: 1,
                ipus_per_job_instance: "4".to_owned(),
                workers_per_job_instance: None,
                model_replicas_per_worker: None,
                worker_per_job_instance: None,
                model_replicas: None,
                ipus_per_model_replica: None,
                workers: Workers {
                    replicas: None,
                    template: PodTemplate(template),
                    strategy: None,
                    failure_policy: None,
                },
                launcher: None,
                interactive: None,
                restart_policy: Some(RestartPolicy {
                    type_: RestartPolicyType::Never,
                    back_off_limit: Some(3),
                    exit_codes: None,
                }),
                clean_pod_policy: Some(CleanPodPolicy::None),
                suspend: None,
                managed_by: None,
                active_deadline_seconds: None,
                ttl_seconds_after_finished: None,
            },
        );
        job.metadata.namespace = Some("default".to_owned());
        job.metadata.uid = Some("beb81bbe-2309-494a-9e28-2a75a704be15".to_owned());
        job.metadata.generation = Some(1);
        job.metadata.finalizers = Some(vec![labels::JOB_FINALIZER.to_owned()]);
        job
    }

    fn instances(mut self, instances: i32) -> Self {
        self.spec.job_instances = instances;
        self
    }

    fn ipus(mut self, ipus: &str) -> Self {
        ipus.clone_into(&mut self.spec.ipus_per_job_instance);
        self
    }

    fn workers(mut self, workers: &str) -> Self {
        self.spec.workers_per_job_instance = Some(workers.to_owned());
        self
    }

    fn replicas_per_worker(mut self, replicas: &str) -> Self {
        self.spec.model_replicas_per_worker = Some(replicas.to_owned());
        self
    }

    fn launcher(mut self, command: &[&str]) -> Self {
        self.spec.launcher = Some(Launcher {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..Launcher::default()
        });
        self
    }

    fn interactive(mut self, ttl: i32) -> Self {
        self.spec.interactive = Some(Interactive { ttl });
        self
    }

    fn suspend(mut self, suspend: bool) -> Self {
        self.spec.suspend = Some(suspend);
        self
    }

    fn strategy(mut self, strategy: &Value) -> Self {
        self.spec.workers.strategy = Some(serde_json::from_value(strategy.clone()).unwrap());
        self
    }

    fn clean(mut self, policy: CleanPodPolicy) -> Self {
        self.spec.clean_pod_policy = Some(policy);
        self
    }

    fn restart(mut self, type_: RestartPolicyType) -> Self {
        self.spec.restart_policy = Some(RestartPolicy {
            type_,
            back_off_limit: None,
            exit_codes: None,
        });
        self
    }

    fn template(mut self, patch: &Value) -> Self {
        json_patch::merge(&mut self.spec.workers.template.0, patch);
        self
    }

    fn object(&self) -> Value {
        serde_json::to_value(self).unwrap()
    }

    fn valid(&self) -> ValidJob {
        read(&self.object(), MAX_IPUS).unwrap()
    }
}

/// Reason why no part of an object is started, if there is one.
pub(crate) fn refusal(object: &Value, max_ipus: u32) -> Option<ValidateError> {
    match read(object, max_ipus) {
        Ok(job) => job.start.refusal().cloned(),
        Err(error) => Some(error),
    }
}

/// A job of two workers and a launcher.
pub(super) fn parallel() -> IPUJob {
    IPUJob::sample().workers("2").launcher(&["mpirun"])
}

/// A job whose first Pods exist and have not started.
pub(super) fn starting(job: &IPUJob) -> (ValidJob, World) {
    let job = job.valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready(0..job.instances);
    world.settle(&job);
    (job, world)
}

/// A job whose workers run, and whose launcher, where it has one, was made and has not started.
pub(super) fn launching(job: &IPUJob) -> (ValidJob, World) {
    let (job, mut world) = starting(job);
    world.run_pods();
    world.settle(&job);
    (job, world)
}

/// A job that runs.
pub(super) fn running(job: &IPUJob) -> (ValidJob, World) {
    let (job, mut world) = launching(job);
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
    (job, world)
}
