//! A trial's view of the cluster, and its actions there.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::http;
use cluster::images::metrics_server;
use cluster::images::openmpi::OpenMpi;
use cluster::interrupt;
use cluster::kubeconfig;
use cluster::lifecycle;
use cluster::plan;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use cluster::wait::{Seen, until};
use futures::FutureExt;
use harness::demo::{self, Controller, Facts, JobFact, Kubectl, KubectlError, Operated};
use harness::operator::NAMESPACE;
use harness::operator::helm::Release;
use harness::operator_process::{OperatorProcess, ProcessError};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, PostParams};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::managers;
use crate::own_namespace;
use crate::simulators;

/// Time limit of any wait on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

/// The namespace of trials that have the cluster for themselves.
const DEFAULT: &str = "default";

/// The objects that a failed trial may leave in its namespace beside IPUJobs, as arguments of
/// `kubectl delete`.
const LEFT: [&str; 2] = [
    "deployments.apps,statefulsets.apps,jobs.batch --all --cascade=foreground",
    "pods --selector=graphcore.ai/native-pod",
];

/// The cluster as one trial uses it: `kubectl` and the client act in the trial's namespace.
pub(crate) struct Fixture {
    /// The cluster.
    pub(crate) lab: Arc<Lab>,
    /// The namespace of the trial's objects.
    pub(crate) namespace: String,
    /// The folders that the cluster uses.
    pub(crate) settings: Settings,
    /// The progress of the run.
    pub(crate) progress: Progress,
    /// The programs of the cluster.
    pub(crate) tools: Tools,
    /// The installed operator.
    pub(crate) operated: Operated,
    /// The operator's Helm release.
    pub(crate) release: Release,
}

/// Runs the demo, as `make demo` does.
pub(crate) fn demo(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async { Ok(demo::run(&fixture.operated, &fixture.progress).await?) })
}

impl Fixture {
    /// A trial that has the cluster for itself.
    pub(crate) fn alone(lab: &Arc<Lab>) -> Result<Self, Failed> {
        let kubeconfig = plan::kubeconfig(&lab.settings.run, "admin");
        Self::with(lab, DEFAULT, kubeconfig)
    }

    /// A trial that runs beside others, in a new namespace of this name.
    pub(crate) fn shared(lab: &Arc<Lab>, namespace: &str) -> Result<Self, Failed> {
        let kubeconfig = own_namespace::kubeconfig(&lab.settings, namespace)?;
        let fixture = Self::with(lab, namespace, kubeconfig)?;
        lab.runtime.block_on(own_namespace::create(&fixture))?;
        Ok(fixture)
    }

    fn with(lab: &Arc<Lab>, namespace: &str, kubeconfig: PathBuf) -> Result<Self, Failed> {
        let client = lab.runtime.block_on(kubeconfig::client(&kubeconfig))?;
        let operated = Operated {
            client,
            kubectl: Kubectl {
                kubeconfig,
                ..lab.operated.kubectl.clone()
            },
            repository: lab.operated.repository.clone(),
            release_namespace: lab.operated.release_namespace.clone(),
            proxy_service: lab.operated.proxy_service.clone(),
            controllers: lab.operated.controllers.clone(),
        };
        Ok(Self {
            lab: Arc::clone(lab),
            namespace: namespace.to_owned(),
            settings: lab.settings.clone(),
            progress: lab.progress.clone(),
            tools: lab.tools.clone(),
            operated,
            release: lab.release.clone(),
        })
    }

    /// Runs the work of a trial. After a failure, prints and saves the logs that explain it. Then
    /// ends the trial's faults and deletes its jobs, because the following trials start from a
    /// clean state.
    pub(crate) fn block_on(
        &self,
        work: impl Future<Output = Result<(), Failed>>,
    ) -> Result<(), Failed> {
        let work = async {
            // An assertion's panic must not prevent the cleanup of the cluster.
            let done = AssertUnwindSafe(work).catch_unwind().await;
            let done = done.unwrap_or_else(|panic| Err(said(panic.as_ref())));
            if let Err(failure) = &done
                && !interrupt::came()
            {
                self.lab.explain(failure).await;
                self.tidy().await?;
            }
            done
        };
        let done = self.lab.runtime.block_on(interrupt::unless(work));
        done.unwrap_or_else(|| Err("it was interrupted".into()))
    }

    /// Whether other trials use the cluster at the same time.
    fn is_shared(&self) -> bool {
        self.namespace != DEFAULT
    }

    async fn tidy(&self) -> Result<(), Failed> {
        if !self.is_shared() {
            for controller in &self.operated.controllers {
                simulators::reset(controller).await?;
            }
            self.kubectl(&["uncordon", "--selector=kubernetes.io/os=linux"])
                .await?;
        }
        let jobs = if self.is_shared() {
            "ipujobs --all"
        } else {
            "ipujobs --all --all-namespaces"
        };
        for left in [&[jobs], &LEFT[..]].concat() {
            let delete = format!("delete --timeout=120s {left}");
            let delete: Vec<&str> = delete.split(' ').collect();
            self.kubectl(&delete).await?;
        }
        managers::delete_queues(self).await
    }

    /// Returns the checks of the cluster.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts::new(&self.operated)
    }

    /// Returns the simulated controllers, the small one first.
    pub(crate) fn controllers(&self) -> (&Controller, &Controller) {
        (&self.operated.controllers[0], &self.operated.controllers[1])
    }

    /// Applies a file of `examples/` as a user does.
    pub(crate) async fn apply(&self, file: &str) -> Result<JobFact, Failed> {
        let path = self.path(file);
        self.operated.kubectl.apply(&path).await?;
        Ok(JobFact {
            namespace: self.namespace.clone(),
            ..JobFact::of_file(&path)?
        })
    }

    /// The job of a file of `examples/`.
    pub(crate) fn example(&self, file: &str) -> Result<IPUJob, Failed> {
        let path = self.path(file);
        Ok(serde_saphyr::from_str(&std::fs::read_to_string(path)?)?)
    }

    /// A parallel job whose launcher runs `command`, in the image of this Open MPI, as this user.
    pub(crate) fn parallel(
        &self,
        version: OpenMpi,
        user: i64,
        command: &[&str],
    ) -> Result<IPUJob, Failed> {
        self.lab.import(version)?;
        let mut job = self.example("02-parallel.yaml")?;
        let launcher = job.spec.launcher.as_mut().expect("it is a parallel job");
        launcher.command = command.iter().copied().map(ToOwned::to_owned).collect();
        let pod = &mut job.spec.workers.template.0["spec"];
        pod["containers"][0]["image"] = version.image().into();
        pod["securityContext"] = json!({"runAsUser": user, "runAsGroup": user});
        Ok(job)
    }

    /// Loads the image of metrics-server onto the nodes. Returns the folder of its manifests and
    /// the name of the image.
    pub(crate) fn metrics_server(&self) -> Result<(PathBuf, String), Failed> {
        let image = metrics_server::ensure(&self.settings, &self.progress)?;
        let name = image.name.clone();
        lifecycle::import(&self.settings.run, &self.tools, &[image])?;
        let source = Tools::source(&self.settings, "metrics-server")?;
        Ok((source.join("manifests/base"), name))
    }

    /// Creates a job.
    pub(crate) async fn create(&self, job: &IPUJob) -> Result<(), kube::Error> {
        self.jobs().create(&PostParams::default(), job).await?;
        Ok(())
    }

    /// Waits until `kubectl describe` of a job contains all of this.
    pub(crate) async fn described(&self, name: &str, words: &[&str]) -> Result<String, Failed> {
        let describe = ["describe", "ipujob", name];
        let what = format!("kubectl describe ipujob {name} to say {words:?}");
        let said = until(what, PATIENCE, || async {
            let said = self.kubectl(&describe).await?;
            Ok::<_, KubectlError>(Seen::when(said, |said| {
                words.iter().all(|word| said.contains(word))
            }))
        });
        Ok(said.await?)
    }

    /// Deletes all jobs, and waits until no object of any job is left.
    pub(crate) async fn clear(&self) -> Result<(), Failed> {
        let delete = ["delete", "ipujobs", "--all", "--timeout=120s"];
        self.kubectl(&delete).await?;
        self.nothing_left().await
    }

    /// A job by its name.
    pub(crate) async fn job(&self, name: &str) -> Result<IPUJob, kube::Error> {
        self.jobs().get(name).await
    }

    /// Returns the status of a job once it has a state.
    pub(crate) async fn once(&self, name: &str, state: JobState) -> Result<IPUJobStatus, Failed> {
        let what = format!("{name} to be {state:?}");
        let status = until(what, PATIENCE, || async {
            let status = self.job(name).await?.status.unwrap_or_default();
            Ok::<_, kube::Error>(if status.launcher_status == state {
                Seen::Yes(status)
            } else {
                let seen = status.launcher_status;
                Seen::NotYet(format!("{seen:?}: {}", status.last_message))
            })
        });
        Ok(status.await?)
    }

    /// Waits until no IPUPartition is left, while jobs can exist.
    pub(crate) async fn once_no_partition(&self) -> Result<(), Failed> {
        until("every partition to be released", PATIENCE, || async {
            let partitions = self.partitions().await?.len();
            Ok::<_, kube::Error>(Seen::when(partitions, |found| *found == 0))
        })
        .await?;
        Ok(())
    }

    /// Runs kubectl as a user does, and returns its output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String, KubectlError> {
        self.operated.kubectl.run(arguments).await
    }

    fn path(&self, file: &str) -> PathBuf {
        self.operated.repository.join("examples").join(file)
    }

    fn jobs(&self) -> Api<IPUJob> {
        Api::default_namespaced(self.operated.client.clone())
    }

    /// Deletes a file of `examples/`, and waits until no object of any job is left.
    pub(crate) async fn delete_and_leave_nothing(&self, file: &str) -> Result<(), Failed> {
        let path = self.path(file);
        self.operated.kubectl.delete(&path).await?;
        self.nothing_left().await
    }

    async fn nothing_left(&self) -> Result<(), Failed> {
        if self.is_shared() {
            return own_namespace::nothing_left(self).await;
        }
        self.facts().nothing_in_the_api(PATIENCE).await?;
        for controller in &self.operated.controllers {
            demo::none_left(controller).await?;
        }
        Ok(())
    }

    /// The IPUPartitions of the trial: all of them, or those of owners in the trial's namespace.
    pub(crate) async fn partitions(&self) -> Result<Vec<IPUPartition>, kube::Error> {
        let partitions: Api<IPUPartition> = Api::all(self.operated.client.clone());
        let mut found = partitions.list(&ListParams::default()).await?.items;
        if self.is_shared() {
            found.retain(|partition| partition.spec.owner.namespace == self.namespace);
        }
        Ok(found)
    }

    /// Returns the number of CreatePartition calls to a simulated controller so far.
    pub(crate) async fn creates_seen(&self, controller: &Controller) -> Result<usize, Failed> {
        let url = format!("http://{}/calls", controller.faults_at);
        let calls: Vec<Value> = serde_json::from_str(&http::request("GET", &url, "").await?)?;
        Ok(calls
            .iter()
            .filter(|call| call["method"] == "CreatePartition")
            .count())
    }

    /// Waits until the API server accepts jobs again: a killed controller acquires its Lease and
    /// ends jobs before its Service routes to its webhooks.
    pub(crate) async fn webhooks_answer(&self) -> Result<(), Failed> {
        let job = self.example("01-single-worker.yaml")?;
        until("the webhooks to answer", PATIENCE, || async {
            Ok::<_, kube::Error>(Seen::Yes(self.would_take(&job).await?))
        })
        .await?;
        Ok(())
    }

    /// Whether the API server would accept a job, in a dry run.
    pub(crate) async fn would_take(&self, job: &IPUJob) -> Result<(), kube::Error> {
        let asked = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        self.jobs().create(&asked, job).await?;
        Ok(())
    }

    /// Kills the proxy that leads.
    pub(crate) async fn kill_leading_proxy(&self) -> Result<(), Failed> {
        let holder = self.leader("ipu-operator-vipu-proxy").await?;
        self.kill("vipu-proxy", holder.as_deref()).await
    }

    /// Kills the controller that leads. Returns its Pod.
    pub(crate) async fn kill_leading_controller(&self) -> Result<String, Failed> {
        let holder = self.leader("ipu-operator-controller-manager").await?;
        let holder = holder.ok_or("nobody leads")?;
        self.kill("controller", Some(&holder)).await?;
        Ok(holder)
    }

    /// Returns the Pod that holds a Lease of the operator.
    pub(crate) async fn leader(&self, lease: &str) -> Result<Option<String>, kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.operated.client.clone(), NAMESPACE);
        let lease = leases.get(lease).await?;
        Ok(lease.spec.and_then(|spec| spec.holder_identity))
    }

    async fn kill(&self, subcommand: &str, pod: Option<&str>) -> Result<(), Failed> {
        let process = until(format!("{subcommand} to run"), PATIENCE, || async {
            Ok::<_, ProcessError>(Seen::Yes(OperatorProcess::find(subcommand, pod)?))
        })
        .await?;
        process.kill()?;
        Ok(())
    }
}

/// Returns the message of a panic: an assertion's message is a `String` or a literal.
fn said(panic: &(dyn Any + Send)) -> Failed {
    let literal = || panic.downcast_ref::<&str>().map(ToString::to_string);
    let said = panic.downcast_ref::<String>().cloned().or_else(literal);
    said.unwrap_or_else(|| "it panicked".to_owned()).into()
}
