//! Kubeflow's mpi-operator under the same load, with its own limits lifted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use cluster::command;
use cluster::control_plane::{ControlPlane, free_ports};
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::supervisor::{Program, Supervisor};
use cluster::tools::Tools;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::{Value, json};

use super::consumption::Consumption;
use super::fake_node::FakeNode;
use super::running_jobs::RunningJobs;
use super::submit::{jobs, once_served, submit};
use super::{Load, LoadError, NAMESPACE, PATIENCE, accounts, job_controller, plane};
use cluster::api_writes::Writes;

/// A limit of requests per second that the test machines do not reach.
const NO_LIMIT: &str = "100000";

/// When mpi-operator creates the batch Job of a launcher.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum LauncherCreation {
    /// Together with the workers, its default.
    AtStartup,
    /// When all workers are Ready.
    WaitForWorkersReady,
}

/// Measures jobs until their status says that they run. The Job controller creates the launcher's
/// Pod.
pub async fn mpi_operator(
    count: usize,
    creation: LauncherCreation,
    fsync: bool,
) -> Result<Load, LoadError> {
    let settings = Settings::from_env()?;
    let tools = Tools::fetch_some(
        &settings,
        &Progress::start(),
        &["kubernetes", "mpi-operator"],
    )?;
    let plane = plane(fsync).await?;
    let client = plane.client().await?;
    define_mpi_job(&settings, &tools, &plane.kubeconfig())?;
    let mpi_jobs = jobs(&client, "kubeflow.org", "v2beta1", "MPIJob");
    once_served(&mpi_jobs).await?;
    let scratch = tempfile::tempdir().map_err(|error| LoadError::Start("mpi-operator", error))?;
    let account = ordinary_account(&settings, &tools, &plane, scratch.path()).await?;
    let _operator = start_mpi_operator(&tools, &account, scratch.path())?;
    let _job_controller = job_controller::start(&tools, &plane, scratch.path()).await?;
    let _node = FakeNode::start(client.clone());
    let running = RunningJobs::follow(mpi_jobs.clone(), is_running);
    // When the first job runs, the operator is the leader and all watches work.
    submit(&mpi_jobs, 1, |_| mpi_job("first", creation)).await?;
    running.once(1, PATIENCE).await?;
    let before = Writes::so_far(&client).await.map_err(Box::new)?;
    let used = Consumption::of_api_server(&plane)?;
    let begun = Instant::now();
    let job = |number| mpi_job(&format!("job-{number}"), creation);
    submit(&mpi_jobs, count, job).await?;
    running.once(count + 1, PATIENCE).await?;
    let took = begun.elapsed();
    let others = ["POST mpijobs", "PATCH pods/status"];
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

/// Starts mpi-operator beside a cluster, with its limits lifted. It reconciles MPIJobs in all
/// namespaces.
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

/// Creates the account and the rights of mpi-operator's own manifests.
async fn ordinary_account(
    settings: &Settings,
    tools: &Tools,
    plane: &ControlPlane,
    folder: &Path,
) -> Result<PathBuf, LoadError> {
    create_manifest(settings, tools, &plane.kubeconfig(), "cluster-role.yaml")?;
    let account = (NAMESPACE, "mpi-operator");
    accounts::create(plane, account).await?;
    // The manifest of the binding lacks the account's namespace.
    accounts::bind(plane, account, "mpi-operator").await?;
    accounts::kubeconfig_of(plane, folder, account).await
}

/// Whether the launcher and all workers of an MPIJob run.
fn is_running(job: &DynamicObject) -> bool {
    let conditions = job.data["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Running" && condition["status"] == "True")
}

/// Applies the CRD of the module.
pub(crate) fn define_mpi_job(
    settings: &Settings,
    tools: &Tools,
    kubeconfig: &Path,
) -> Result<(), LoadError> {
    create_manifest(settings, tools, kubeconfig, "kubeflow.org_mpijobs.yaml")
}

/// Creates the objects of one of mpi-operator's own manifests.
fn create_manifest(
    settings: &Settings,
    tools: &Tools,
    kubeconfig: &Path,
    file: &str,
) -> Result<(), LoadError> {
    let manifests = Tools::source(settings, "mpi-operator")?.join("manifests/base");
    let mut create = Command::new(tools.program("kubectl"));
    create
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--namespace", NAMESPACE, "create", "--filename"])
        .arg(manifests.join(file));
    command::run(&mut create).map_err(|source| LoadError::Command {
        action: "create the objects of a manifest of mpi-operator",
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
