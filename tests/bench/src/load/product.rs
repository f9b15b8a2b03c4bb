//! The IPU Operator under load: its own programs and its chart, on an API server without nodes.

mod setup;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cluster::control_plane::{ControlPlane, free_ports};
use cluster::http;
use cluster::log_tail::LogTail;
use cluster::process::Process;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::supervisor::{Program, Supervisor};
use cluster::tools::Tools;
use cluster::wait::{Seen, until, until_or_ended};
use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use release::dist::Profile;
use serde_json::{Value, json};
use vipu_simulator::Simulator;

use super::consumption::Consumption;
use super::fake_node::{FakeNode, end_all};
use super::running_jobs::RunningJobs;
use super::submit::{jobs, submit};
use super::vipu_controllers::{label, simulators};
use super::{Load, LoadError, PATIENCE, accounts, api, as_figure, plane};
use cluster::api_writes::Writes;
use setup::{install, values};

pub use setup::LauncherRights;
pub(super) use setup::Setup;

/// Namespace and Helm release.
pub(super) const RELEASE: &str = "ipu-operator";

/// Name of the job, or of the partition's owner, whose objects the bare loop copies.
pub(super) const FIRST: &str = "first-0";

/// The variable with the path of a program's kubeconfig.
const KUBECONFIG: &str = "KUBECONFIG";

/// Lines of the log in the message about a program that ended.
const LINES: usize = 8;

/// The usage of the controller after a number of jobs.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of jobs.
    pub jobs: usize,
    /// Consumption while all of them ran, compared with none.
    pub live: Consumption,
    /// Consumption after all of them had completed.
    pub finished: Consumption,
}

impl Sizes {
    /// Time on a processor for each job, in milliseconds.
    pub fn cpu_ms_of_each(&self, used: Consumption) -> f64 {
        used.cpu.as_secs_f64() * 1000.0 / as_figure(self.jobs as u64)
    }
}

/// Measures jobs until their status says that they run. Also returns the objects of one job, for
/// the bare loop.
pub async fn ipu_operator(
    count: usize,
    rights: LauncherRights,
    fsync: bool,
) -> Result<(Load, Vec<Value>), LoadError> {
    let setup = Setup {
        rights,
        fsync,
        ..Setup::default()
    };
    let product = Product::start_with(setup).await?;
    let of_jobs = jobs(&product.client, "graphcore.ai", "v1alpha1", "IPUJob");
    let running = RunningJobs::follow(of_jobs, |job| {
        job.data["status"]["launcherStatus"] == "Running"
    });
    product.submit("first", 1).await?;
    running.once(1, PATIENCE).await?;
    let objects = match rights {
        LauncherRights::OfJob => product.objects_of(FIRST).await?,
        // Nothing copies these jobs.
        LauncherRights::Shared => Vec::new(),
    };
    let before = Writes::so_far(&product.client).await.map_err(Box::new)?;
    let used = Consumption::of_api_server(&product.plane)?;
    let begun = Instant::now();
    product.submit("job", count).await?;
    running.once(count + 1, PATIENCE).await?;
    let took = begun.elapsed();
    let others = ["POST ipujobs", "PATCH pods/status"];
    let writes = Writes::so_far(&product.client)
        .await
        .map_err(Box::new)?
        .since(&before, &others);
    let load = Load {
        count,
        took,
        writes,
        api_server: Consumption::of_api_server(&product.plane)?.saturating_sub(used),
    };
    Ok((load, objects))
}

/// Measures what the controller uses while `count` jobs run, and after all have completed.
pub async fn sizes(count: usize) -> Result<Sizes, LoadError> {
    let product = Product::start().await?;
    product.submit_and_run("job", count).await?;
    product.once_all("Running", count).await?;
    let live = product.consumption()?;
    end_all(&product.client, "-launcher").await?;
    product.once_all("Completed", count).await?;
    Ok(Sizes {
        jobs: count,
        live,
        finished: product.consumption()?,
    })
}

/// Both processes, and their requirements.
pub(super) struct Product {
    // Fields drop in this order: the programs end before their servers.
    programs: Supervisor,
    pub(super) node: FakeNode,
    pub(super) client: Client,
    pub(super) simulators: Vec<Simulator>,
    plane: ControlPlane,
    _scratch: tempfile::TempDir,
}

impl Product {
    pub(super) async fn start() -> Result<Self, LoadError> {
        Self::start_with(Setup::default()).await
    }

    pub(super) async fn start_with(setup: Setup) -> Result<Self, LoadError> {
        let settings = Settings::from_env()?;
        let names = ["kubernetes", "helm"];
        let tools = Tools::fetch_some(&settings, &Progress::start(), &names)?;
        let plane = plane(setup.fsync).await?;
        let client = plane.client().await?;
        let simulators = simulators(setup.controllers, setup.ipus).await?;
        let failed = |source| LoadError::Start("the operator", source);
        let ports = free_ports().map_err(failed)?;
        let values = values(ports, &simulators, setup.rights);
        install(&settings, &tools, &plane, &values)?;
        for index in 0..setup.controllers {
            labelled_node(&client, &label(index)).await?;
        }
        let scratch = tempfile::tempdir().map_err(failed)?;
        let mut programs = programs(&settings, &plane, ports, setup.rights, scratch.path());
        for program in &mut programs {
            let account = match program.name {
                "controller" => format!("{RELEASE}-controller-manager"),
                other => format!("{RELEASE}-{other}"),
            };
            let account = accounts::kubeconfig_of(&plane, scratch.path(), (RELEASE, &account));
            program.env.retain(|(name, _)| *name != KUBECONFIG);
            program.env.push((KUBECONFIG, account.await?.into()));
        }
        let programs = Supervisor::start(programs).map_err(failed)?;
        let [_, probes, rest, _, _] = ports;
        for port in [probes, rest] {
            once_ready(port, &programs, scratch.path()).await?;
        }
        Ok(Self {
            programs,
            node: FakeNode::start(client.clone()),
            client,
            simulators,
            plane,
            _scratch: scratch,
        })
    }

    pub(super) async fn submit(&self, name: &str, count: usize) -> Result<(), LoadError> {
        let api = jobs(&self.client, "graphcore.ai", "v1alpha1", "IPUJob");
        submit(&api, count, |number| job(&format!("{name}-{number}"))).await
    }

    /// Submits the first jobs and waits until all their Pods run.
    async fn submit_and_run(&self, name: &str, count: usize) -> Result<(), LoadError> {
        self.submit(name, count).await?;
        self.node.once_running(3 * count, PATIENCE).await
    }

    /// Waits until this number of jobs has a STATUS.
    async fn once_all(&self, status: &str, count: usize) -> Result<(), LoadError> {
        let api = jobs(&self.client, "graphcore.ai", "v1alpha1", "IPUJob");
        until(format!("{count} jobs to be {status}"), PATIENCE, || async {
            let found = api.list(&ListParams::default()).await?.items;
            let are_so = found
                .iter()
                .filter(|job| job.data["status"]["launcherStatus"] == status);
            Ok::<_, kube::Error>(Seen::when(are_so.count(), |now| *now >= count))
        })
        .await?;
        Ok(())
    }

    /// The job and all its objects, in the order of their creation.
    async fn objects_of(&self, job: &str) -> Result<Vec<Value>, LoadError> {
        let no_json = |error: serde_json::Error| LoadError::Missing(error.to_string());
        let launcher = format!("{job}-launcher");
        let mut objects = Vec::new();
        for (group, version, kind, name) in [
            ("graphcore.ai", "v1alpha1", "IPUJob", job.to_owned()),
            ("", "v1", "ServiceAccount", launcher.clone()),
            ("rbac.authorization.k8s.io", "v1", "Role", launcher.clone()),
            (
                "rbac.authorization.k8s.io",
                "v1",
                "RoleBinding",
                launcher.clone(),
            ),
            ("", "v1", "Pod", format!("{job}-worker-0")),
            ("", "v1", "Pod", format!("{job}-worker-1")),
            ("", "v1", "Pod", launcher.clone()),
        ] {
            let found = jobs(&self.client, group, version, kind).get(&name).await;
            let found = found.map_err(api("read an object of a job"))?;
            objects.push(serde_json::to_value(found).map_err(no_json)?);
        }
        let partitions: Api<IPUPartition> = Api::all(self.client.clone());
        let found = partitions.list(&ListParams::default()).await;
        let found = found.map_err(api("list the IPUPartitions"))?.items;
        let mut of_job = found.iter().filter(|found| found.spec.owner.name == job);
        let partition = of_job.next().map(serde_json::to_value);
        let missing = || LoadError::Missing(format!("{job} has no IPUPartition"));
        objects.push(partition.ok_or_else(missing)?.map_err(no_json)?);
        Ok(objects)
    }

    fn consumption(&self) -> Result<Consumption, LoadError> {
        consumption(&self.programs, "controller")
    }
}

/// A node with the label `ipunode=<label>` of a simulated controller.
pub(super) async fn labelled_node(client: &Client, label: &str) -> Result<(), LoadError> {
    let node = Node {
        metadata: ObjectMeta {
            name: Some(format!("node-of-{label}")),
            labels: Some([("ipunode".to_owned(), label.to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    let nodes: Api<Node> = Api::all(client.clone());
    let made = nodes.create(&PostParams::default(), &node).await;
    made.map(drop).map_err(api("make a node"))
}

/// Waits until the one of these programs with its readiness probe on this port is ready.
pub(super) async fn once_ready(
    port: u16,
    programs: &Supervisor,
    scratch: &Path,
) -> Result<(), LoadError> {
    let url = format!("http://127.0.0.1:{port}/readyz");
    let all_run = || match programs.first_dead() {
        None => Ok(()),
        Some(name) => Err(LoadError::Ended {
            name,
            log: LogTail::read(&log_of(name, scratch), LINES),
        }),
    };
    let what = format!("{url} to answer");
    until_or_ended(what, Duration::from_mins(1), all_run, async || {
        http::request("GET", &url, "").await.is_ok()
    })
    .await?
}

/// The usage of one of these programs so far.
pub(super) fn consumption(programs: &Supervisor, name: &str) -> Result<Consumption, LoadError> {
    let process: Option<Process> = programs.process(name);
    let ended = || LoadError::Missing(format!("the {name} has ended"));
    Consumption::of(process.ok_or_else(ended)?)
}

fn programs(
    settings: &Settings,
    plane: &ControlPlane,
    [webhooks, probes, rest, secure, metrics]: [u16; 5],
    rights: LauncherRights,
    scratch: &Path,
) -> Vec<Program> {
    let mut controller = vec![
        format!("--webhook-port={webhooks}"),
        format!("--probe-port={probes}"),
        format!("--metrics-port={metrics}"),
        "--webhook-certificate=issued".to_owned(),
        "--webhook-ca-bundle=await".to_owned(),
        "--webhook-owner=false".to_owned(),
        "--launcher-image=example.org/ipu-operator:1".to_owned(),
    ];
    if rights == LauncherRights::Shared {
        controller.push(format!("--launcher-policy={RELEASE}-launchers.{RELEASE}"));
    }
    let proxy = [
        format!("--port={rest}"),
        format!("--secure-port={secure}"),
        // Nothing probes it, so any free port will do.
        "--probe-port=0".to_owned(),
        "--certificate=issued".to_owned(),
    ];
    // It takes no options of guests.
    let mut certificates = program("certificates", &[], settings, plane, scratch);
    certificates.args.truncate(2);
    vec![
        certificates,
        program("controller", &controller, settings, plane, scratch),
        program("vipu-proxy", &proxy, settings, plane, scratch),
    ]
}

/// One of the operator's processes, with the arguments of the chart and these additional options.
pub(super) fn program(
    name: &'static str,
    args: &[String],
    settings: &Settings,
    plane: &ControlPlane,
    scratch: &Path,
) -> Program {
    let dist = Profile::from_env().folder(&settings.checkout);
    let common = [
        name.to_owned(),
        format!("--namespace={RELEASE}"),
        format!("--guests-dir={}", dist.join("guests").display()),
        format!("--compile-cache-dir={}", scratch.join("compiled").display()),
    ];
    Program {
        name,
        path: dist.join("ipu-operator"),
        args: common.iter().chain(args).cloned().collect(),
        env: vec![
            (KUBECONFIG, plane.kubeconfig().into()),
            // As in the chart.
            (
                "_RJEM_MALLOC_CONF",
                "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0".into(),
            ),
        ],
        log: log_of(name, scratch),
    }
}

/// Returns the path of the log of a process started by [`program`].
pub(super) fn log_of(name: &str, scratch: &Path) -> PathBuf {
    scratch.join(format!("{name}.log"))
}

pub(super) fn job(name: &str) -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "2",
            "workersPerJobInstance": "2",
            "launcher": {"command": ["mpirun", "hostname"]},
            "workers": {"template": {"spec": {"containers": [
                {"name": "main", "image": "example.org/job:1"},
            ]}}},
        },
    })
}
