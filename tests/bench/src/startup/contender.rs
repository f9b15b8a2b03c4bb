//! The compared objects. Different controllers start the same program in the same image.

use cluster::images::openmpi::OpenMpi;
use ipu_api::ipupartition::IPUPartition;
use kube::Client;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use crate::load::jobs;

/// Namespace of all objects.
pub(super) const NAMESPACE: &str = "default";

/// A controller that starts a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// A batch Job.
    BatchJob,
    /// An IPUJob of a single worker.
    Worker,
    /// The launcher of an IPUJob, once its two workers are ready.
    Launcher,
    /// The same in a release with `agent.delivery=image`.
    LauncherOfImage,
    /// The launcher of mpi-operator, once its two workers are ready.
    MpiJob,
}

impl Contender {
    /// Its name in the results.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::BatchJob => "a batch Job",
            Self::Worker => "an IPUJob of one worker",
            Self::Launcher => "the launcher of an IPUJob with two workers",
            Self::LauncherOfImage => "the same with agent.delivery=image",
            Self::MpiJob => "the launcher of an MPIJob with two workers",
        }
    }

    /// Prefix of the names of its objects.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::BatchJob => "batch",
            Self::Worker => "single",
            Self::Launcher => "parallel",
            Self::LauncherOfImage => "mounted",
            Self::MpiJob => "mpi",
        }
    }

    /// Prefix of the name of the Pod with the program.
    pub(super) fn pod_of(self, name: &str) -> String {
        match self {
            Self::BatchJob => format!("{name}-"),
            Self::Worker => format!("{name}-worker-0"),
            Self::Launcher | Self::LauncherOfImage | Self::MpiJob => format!("{name}-launcher"),
        }
    }

    /// The API of its kind.
    pub(super) fn api(self, client: &Client) -> Api<DynamicObject> {
        let (group, version, kind) = match self {
            Self::BatchJob => ("batch", "v1", "Job"),
            Self::Worker | Self::Launcher | Self::LauncherOfImage => {
                ("graphcore.ai", "v1alpha1", "IPUJob")
            }
            Self::MpiJob => ("kubeflow.org", "v2beta1", "MPIJob"),
        };
        jobs(client, group, version, kind)
    }

    /// The object that starts it.
    ///
    /// # Panics
    /// Never: it is an object with a kind and a name.
    pub(super) fn object(self, name: &str) -> DynamicObject {
        let (version, kind, spec) = match self {
            Self::BatchJob => ("batch/v1", "Job", batch_job()),
            Self::Worker => ("graphcore.ai/v1alpha1", "IPUJob", worker()),
            Self::Launcher | Self::LauncherOfImage => {
                ("graphcore.ai/v1alpha1", "IPUJob", launcher())
            }
            Self::MpiJob => ("kubeflow.org/v2beta1", "MPIJob", mpi_job()),
        };
        let object = json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        serde_json::from_value(object).expect("it is an object with a kind and a name")
    }
}

/// The API of IPUPartitions.
pub(super) fn partitions(client: &Client) -> Api<IPUPartition> {
    Api::all(client.clone())
}

/// Prints the time of its start, because the output is read later.
fn program() -> Value {
    json!(["date", "+%s.%N"])
}

fn container(command: &Value) -> Value {
    json!({
        "name": "main",
        "image": OpenMpi::Four.image(),
        "imagePullPolicy": "IfNotPresent",
        "command": command,
    })
}

fn batch_job() -> Value {
    json!({"template": {"spec": {
        "restartPolicy": "Never",
        "containers": [container(&program())],
    }}})
}

fn worker() -> Value {
    json!({
        "jobInstances": 1,
        "ipusPerJobInstance": "1",
        "workers": {"template": {"spec": {"containers": [container(&program())]}}},
    })
}

fn launcher() -> Value {
    let mut container = container(&Value::Null);
    container["command"].take();
    json!({
        "jobInstances": 1,
        "ipusPerJobInstance": "2",
        "workersPerJobInstance": "2",
        "launcher": {"command": program()},
        "workers": {"template": {"spec": {"containers": [container]}}},
    })
}

/// Its launcher waits for the workers too, because it needs them to start the program.
fn mpi_job() -> Value {
    let worker = container(&json!(["sleep", "3600"]));
    json!({
        "slotsPerWorker": 1,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"cleanPodPolicy": "None"},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [container(&program())],
            }}},
            // As the first process of a container, `sleep` ignores signals.
            "Worker": {"replicas": 2, "template": {"spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [worker],
            }}},
        },
    })
}
