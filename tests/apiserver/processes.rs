//! The operator's processes as in their Pods, beside an API server on which the chart is installed:
//! each has an environment and a folder of its own.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use cluster::cgroups::memory::MemoryCgroup;
use cluster::control_plane::free_ports;
use cluster::control_plane::pool::Loan;
use cluster::http;
use cluster::kubeconfig;
use cluster::supervisor::{Program, Supervisor};
use cluster::wait::{Seen, eventually, within};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use release::guests;
use serde_json::{Value, json};
use tests::debug_operator;
use vipu_simulator::{Options, Simulator};

use crate::chart::admin::Admin;
use crate::planes;

/// Namespace, release and fullname.
pub(crate) const RELEASE: &str = "ipu-operator";

/// Median of the time until a process is ready.
const START: Duration = Duration::from_secs(2);

/// Environment variables of a process.
pub(crate) type Environment = Vec<(&'static str, OsString)>;

/// Further settings of an admin, which the chart passes to the processes.
#[derive(Default)]
pub(crate) struct Given {
    /// Values for the chart, as `name=value`.
    pub(crate) values: Vec<&'static str>,
    /// Arguments of the controller.
    pub(crate) controller: Vec<&'static str>,
    /// Arguments of the proxy.
    pub(crate) proxy: Vec<&'static str>,
    /// The port of the webhooks, if it must be known before. Otherwise any free one.
    pub(crate) webhooks: Option<u16>,
}

/// An API server with the chart, a V-IPU controller and a node that reaches it.
pub(crate) struct Installation {
    given: Given,
    pub(crate) client: Client,
    pub(crate) plane: Loan,
    program: PathBuf,
    guests: PathBuf,
    /// The address of the webhooks in the configurations of the API server.
    webhooks: u16,
    /// The address at which processes reach the API server, if not its own.
    api_server: Option<String>,
    folder: tempfile::TempDir,
    pub(crate) simulator: Simulator,
}

/// A process of the operator. Its drop kills it.
pub(crate) struct Running {
    name: &'static str,
    supervisor: Supervisor,
    readiness: String,
    log: PathBuf,
    /// The address that it serves: a controller its webhooks, a proxy its REST API in plain text.
    pub(crate) port: u16,
}

impl Installation {
    pub(crate) async fn new() -> Self {
        Self::of(planes::with_definitions().await, Given::default()).await
    }

    pub(crate) async fn of(plane: Loan, given: Given) -> Self {
        // An initial build of both takes minutes, and blocks.
        let built = tokio::task::spawn_blocking(|| (debug_operator::program(), guests::build()));
        let (program, guests) = built.await.unwrap();
        let client = plane.client().await.unwrap();
        let simulator = Simulator::start(Options::quick("pod1", 64)).await.unwrap();
        let [free] = free_ports().unwrap();
        let webhooks = given.webhooks.unwrap_or(free);
        install(&plane, webhooks, &simulator, &given.values);
        let node = json!({"metadata": {"name": "node1", "labels": {"ipunode": "pod1"}}});
        let node: Node = serde_json::from_value(node).unwrap();
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
        Self {
            given,
            client,
            plane,
            program: program.unwrap(),
            guests: guests.unwrap(),
            webhooks,
            api_server: None,
            folder: tempfile::tempdir().unwrap(),
            simulator,
        }
    }

    /// Lets further processes reach the API server at this address.
    pub(crate) fn reach_at(&mut self, api_server: String) {
        self.api_server = Some(api_server);
    }

    /// Starts further processes within the limits of this cgroup, as in a container.
    pub(crate) fn limit_memory(&mut self, cgroup: &MemoryCgroup) {
        let script = self.folder.path().join("in-cgroup");
        let (processes, program) = (cgroup.processes(), self.program.display());
        let text = format!(
            "#!/bin/sh\necho $$ >{} && exec {program} \"$@\"\n",
            processes.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        self.program = script;
    }

    /// Adds guests to those of the image of each process that is started from now on.
    pub(crate) fn add_guests(&mut self, added: &[(String, Vec<u8>)]) {
        let folder = self.folder.path().join("guests");
        fs::create_dir(&folder).unwrap();
        for entry in fs::read_dir(&self.guests).unwrap() {
            let path = entry.unwrap().path();
            // Another test may be writing its own guests at the same time.
            if path
                .extension()
                .is_some_and(|extension| extension == "wasm")
            {
                fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
            }
        }
        for (file, module) in added {
            fs::write(folder.join(file), module).unwrap();
        }
        self.guests = folder;
    }

    /// Starts a controller whose webhooks the API server calls. There can be one of them at a time.
    pub(crate) async fn controller(&self, name: &'static str, environment: Environment) -> Running {
        self.controller_on(self.webhooks, name, environment).await
    }

    #[cfg(feature = "long")]
    /// Starts a controller whose webhooks nothing calls.
    pub(crate) async fn replica(&self, name: &'static str, environment: Environment) -> Running {
        let [webhooks] = free_ports().unwrap();
        self.controller_on(webhooks, name, environment).await
    }

    async fn controller_on(
        &self,
        webhooks: u16,
        name: &'static str,
        environment: Environment,
    ) -> Running {
        let [probes, metrics] = free_ports().unwrap();
        let args = [
            "controller".to_owned(),
            format!("--webhook-port={webhooks}"),
            format!("--probe-port={probes}"),
            format!("--metrics-port={metrics}"),
            "--worker-host-network=false".to_owned(),
            "--launcher-image=example.org/ipu-operator:1".to_owned(),
        ];
        let args = (&args[..], &self.given.controller[..]);
        self.started(name, [webhooks, probes], args, environment)
            .await
    }

    pub(crate) async fn proxy(&self, name: &'static str, environment: Environment) -> Running {
        let [rest, secure, probes] = free_ports().unwrap();
        let args = [
            "vipu-proxy".to_owned(),
            format!("--port={rest}"),
            format!("--secure-port={secure}"),
            format!("--probe-port={probes}"),
        ];
        let args = (&args[..], &self.given.proxy[..]);
        self.started(name, [rest, probes], args, environment).await
    }

    /// Starts a process that serves these ports. Returns it once it is ready.
    async fn started(
        &self,
        name: &'static str,
        [port, probes]: [u16; 2],
        (args, given): (&[String], &[&str]),
        mut environment: Environment,
    ) -> Running {
        let folder = self.compiled(name);
        fs::create_dir_all(&folder).unwrap();
        let common = [
            format!("--namespace={RELEASE}"),
            format!("--guests-dir={}", self.guests.display()),
            format!("--compile-cache-dir={}", folder.display()),
        ];
        environment.push(("KUBECONFIG", self.account(&args[0]).into()));
        environment.push(("HOSTNAME", name.into()));
        let log = self.folder.path().join(format!("{name}.log"));
        let args = args.iter().chain(&common).cloned();
        let args = args.chain(given.iter().map(ToString::to_string)).collect();
        let program = Program {
            name,
            path: self.program.clone(),
            args,
            env: environment,
            log: log.clone(),
        };
        let running = Running {
            name,
            supervisor: Supervisor::start(vec![program]).unwrap(),
            readiness: format!("http://127.0.0.1:{probes}/readyz"),
            log,
            port,
        };
        let what = format!("{name} is ready");
        let ready = eventually(&what, async || {
            let answer = http::request("GET", &running.readiness, "").await;
            running.must_run();
            Seen::from(answer.map_err(|error| format!("{error}; {}", running.said())))
        });
        within(&what, START, ready).await;
        running
    }

    /// Writes the kubeconfig of a process. The policies of the chart know it by the name of its
    /// ServiceAccount; it has the rights of an admin, and the trials on nodes show that those of
    /// the chart suffice.
    pub(crate) fn account(&self, process: &str) -> PathBuf {
        let account = match process {
            "controller" => "controller-manager",
            other => other,
        };
        let user = format!("system:serviceaccount:{RELEASE}:{RELEASE}-{account}");
        let path = self.folder.path().join(format!("{process}.kubeconfig"));
        let admins = Some("system:masters");
        kubeconfig::write_as(&self.plane.kubeconfig(), &path, &user, admins).unwrap();
        if let Some(api_server) = &self.api_server {
            kubeconfig::write_at(&path, &path, api_server).unwrap();
        }
        path
    }

    /// Returns the folder in which the process of this name caches compiled guests.
    pub(crate) fn compiled(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("compiled-of-{name}"))
    }

    pub(crate) fn jobs(&self) -> Api<IPUJob> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// The user creates a job, as soon as the API server trusts the webhooks.
    pub(crate) async fn submit(&self, job: &Value) {
        let job: IPUJob = serde_json::from_value(job.clone()).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually("the webhooks are called", async || {
            let asked = self.jobs().create(&dry_run, &job).await;
            let error = asked.err().map(|error| error.to_string());
            Seen::when(error.unwrap_or_default(), |error| {
                !error.contains("failed calling webhook")
            })
        })
        .await;
        let made = self.jobs().create(&PostParams::default(), &job).await;
        made.unwrap();
    }

    /// Returns the status of a job once it has a state.
    pub(crate) async fn once(&self, job: &str, state: JobState) -> IPUJobStatus {
        eventually(&format!("{job} is {state:?}"), async || {
            match self.jobs().get(job).await {
                Ok(found) => Seen::when(found.status.unwrap_or_default(), |status| {
                    status.launcher_status == state
                }),
                Err(error) => Seen::of_error(&error),
            }
        })
        .await
    }

    /// The kubelet: waits for a Pod, and runs it.
    pub(crate) async fn runs(&self, pod: &str) -> Pod {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"phase": "Running", "conditions": conditions}});
        self.pod_is(pod, &status).await
    }

    /// The kubelet: completes the program of a Pod.
    pub(crate) async fn ends(&self, pod: &str) -> Pod {
        let status = json!({"status": {
            "phase": "Succeeded",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
            }],
        }});
        self.pod_is(pod, &status).await
    }

    async fn pod_is(&self, pod: &str, status: &Value) -> Pod {
        let status = Patch::Merge(status);
        eventually(&format!("{pod} is there"), async || {
            let (pods, params) = (self.pods(), PatchParams::default());
            let patched = pods.patch_status(pod, &params, &status);
            Seen::from(patched.await)
        })
        .await
    }

    /// Returns the ids of all partitions, by the names of the jobs that own them.
    pub(crate) async fn partitions(&self) -> Vec<(String, Option<String>)> {
        let partitions: Api<IPUPartition> = Api::all(self.client.clone());
        let found = partitions.list(&ListParams::default()).await.unwrap();
        let found = found.into_iter().map(|one| {
            let id = one.status.and_then(|status| status.partition_id);
            (one.spec.owner.name, id)
        });
        found.collect()
    }

    /// Returns the ids of all partitions on the V-IPU controller.
    pub(crate) fn formed(&self) -> Vec<String> {
        self.simulator.server.with(|world, now| {
            let partitions = world.pod.partitions(now);
            partitions.map(|partition| partition.id.clone()).collect()
        })
    }
}

impl Running {
    /// # Panics
    /// Panics if the process has ended.
    pub(crate) fn must_run(&self) {
        let dead = self.supervisor.first_dead();
        assert!(dead.is_none(), "{} has ended: {}", self.name, self.said());
    }

    /// Waits until the log contains this text.
    pub(crate) async fn says(&self, words: &str) {
        eventually(&format!("{} says `{words}`", self.name), async || {
            Seen::when(self.said(), |said| said.contains(words))
        })
        .await;
    }

    /// Returns the log so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Running {
    /// libfaketime removes its shared memory when a process exits by itself. These processes are
    /// killed.
    fn drop(&mut self) {
        let pid = self
            .supervisor
            .process(self.name)
            .map(|process| process.pid);
        for kind in ["faketime_shm", "sem.faketime_sem"] {
            let file = format!("/dev/shm/{kind}_{}", pid.unwrap_or_default());
            // Most processes have none.
            let _ = fs::remove_file(file);
        }
    }
}

/// Installs the chart as an admin does. Its own Pods never run, because there is no kubelet.
fn install(plane: &Loan, webhooks: u16, simulator: &Simulator, values: &[&str]) {
    let admin = Admin::of(RELEASE, plane.kubeconfig());
    let controllers = format!("global.vipuControllers={}:ipunode=pod1", simulator.address);
    let port = format!("admissionWebhooks.port={webhooks}");
    // The address of the Service is this machine, so its port is that of the webhooks.
    let service = format!("admissionWebhooks.service.servicePort={webhooks}");
    let mut install = vec!["install", RELEASE, admin.chart(), "--create-namespace"];
    install.extend(["--set-string", &controllers]);
    let values = [&port[..], &service]
        .into_iter()
        .chain(values.iter().copied());
    install.extend(values.flat_map(|value| ["--set", value]));
    admin.helm(&install).unwrap();
}
