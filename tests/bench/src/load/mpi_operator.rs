//! Kubeflow's mpi-operator under the same load, with its own limits lifted.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use cluster::command;
use cluster::control_plane::{ControlPlane, free_ports};
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::supervisor::{Program, Supervisor};
use cluster::tools::Tools;
use cluster::wait::{Seen, until};
use kube::api::{Api, DynamicObject, ListParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::consumption::Consumption;
use super::fake_node::FakeNode;
use super::submit::{jobs, once_served, submit};
use super::{Load, LoadError, PATIENCE};
use cluster::api_writes::Writes;

/// A limit of requests per second that the test machines do not reach.
const NO_LIMIT: &str = "100000";

/// When mpi-operator creates the batch Job of a launcher.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum LauncherCreation {
    /// Together with the workers, its default.
    AtStartup,
    /// When all workers are Ready, as the IPU Operator does.
    WaitForWorkersReady,
}

/// Measures jobs until their worker Pods and the launcher's batch Job exist. The controller manager
/// would create the launcher's Pod, but it is not part of the operator and does not run here.
pub async fn mpi_operator(count: usize, creation: LauncherCreation) -> Result<Load, LoadError> {
    let settings = Settings::from_env()?;
    let tools = Tools::fetch_some(
        &settings,
        &Progress::start(),
        &["kubernetes", "mpi-operator"],
    )?;
    let plane = ControlPlane::start().await?;
    let client = plane.client().await?;
    define_mpi_job(&settings, &tools, &plane.kubeconfig())?;
    let mpi_jobs = jobs(&client, "kubeflow.org", "v2beta1", "MPIJob");
    once_served(&mpi_jobs).await?;
    let scratch = tempfile::tempdir().map_err(|error| LoadError::Start("mpi-operator", error))?;
    let _operator = start_mpi_operator(&tools, &plane.kubeconfig(), scratch.path())?;
    let node = FakeNode::start(client.clone());
    // When the first job has its Pods, the operator is the leader and its watches run.
    submit(&mpi_jobs, 1, |_| mpi_job("first", creation)).await?;
    node.once_running(2, PATIENCE).await?;
    let launchers = jobs(&client, "batch", "v1", "Job");
    once_launchers(&launchers, 1).await?;
    let before = Writes::so_far(&client).await.map_err(Box::new)?;
    let used = Consumption::of_api_server(&plane)?;
    let begun = Instant::now();
    let job = |number| mpi_job(&format!("job-{number}"), creation);
    submit(&mpi_jobs, count, job).await?;
    node.once_made(2 * (count + 1), PATIENCE).await?;
    once_launchers(&launchers, count + 1).await?;
    let took = begun.elapsed();
    let others = [
        "POST mpijobs",
        "PATCH pods/status",
        "POST events",
        "PATCH events",
    ];
    let writes = Writes::so_far(&client)
        .await
        .map_err(Box::new)?
        .since(&before, &others);
    Ok(Load {
        count,
        took,
        writes,
        api_server: Consumption::of_api_server(&plane)?.saturating_sub(used),
    })
}

/// Starts mpi-operator beside a cluster, with its limits lifted. It reconciles MPIJobs in all namespaces.
pub(crate) fn start_mpi_operator(
    tools: &Tools,
    kubeconfig: &Path,
    scratch: &Path,
) -> Result<Supervisor, LoadError> {
    let failed = |error| LoadError::Start("mpi-operator", error);
    let [health] = free_ports().map_err(failed)?;
    let program = Program {
        name: "mpi-operator",
        path: tools.program("mpi-operator").to_owned(),
        args: vec![
            format!("--kubeConfig={}", kubeconfig.display()),
            "--lock-namespace=default".to_owned(),
            "--threadiness=16".to_owned(),
            format!("--kube-api-qps={NO_LIMIT}"),
            format!("--kube-api-burst={NO_LIMIT}"),
            format!("--controller-queue-rate-limit={NO_LIMIT}"),
            format!("--controller-queue-burst={NO_LIMIT}"),
            format!("--monitoring-port={health}"),
        ],
        env: Vec::new(),
        log: scratch.join("mpi-operator.log"),
    };
    Supervisor::start(vec![program]).map_err(failed)
}

async fn once_launchers(launchers: &Api<DynamicObject>, count: usize) -> Result<(), LoadError> {
    until(
        format!("{count} launchers to be made"),
        PATIENCE,
        || async {
            let found = launchers.list_metadata(&ListParams::default()).await?;
            Ok::<_, kube::Error>(Seen::when(found.items.len(), |found| *found >= count))
        },
    )
    .await?;
    Ok(())
}

/// Applies the CRD of the module.
pub(crate) fn define_mpi_job(
    settings: &Settings,
    tools: &Tools,
    kubeconfig: &Path,
) -> Result<(), LoadError> {
    let definition = Tools::source(settings, "mpi-operator")?;
    let definition = definition.join("manifests/base/kubeflow.org_mpijobs.yaml");
    let mut create = Command::new(tools.program("kubectl"));
    create
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["create", "--filename"])
        .arg(definition);
    command::run(&mut create).map_err(|source| LoadError::Command {
        action: "apply the CRD of MPIJobs",
        source,
    })
}

fn mpi_job(name: &str, creation: LauncherCreation) -> Value {
    let pod = json!({"spec": {"containers": [
        {"name": "main", "image": "example.org/job:1", "command": ["mpirun", "hostname"]},
    ]}});
    json!({
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 1,
            "launcherCreationPolicy": creation,
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": pod},
                "Worker": {"replicas": 2, "template": pod},
            },
        },
    })
}
