//! Kueue and JobSet on the cluster with nodes, each installed from its own chart as an admin does.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{KueueError, NAMESPACE, RELEASE, chart, configuration, objects};
use cluster::command;
use cluster::files::{make_dir, write_json};
use cluster::images::managers;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use cluster::{lifecycle::import, plan::kubeconfig};

/// Namespace of JobSet's manager.
const JOBSET_NAMESPACE: &str = "jobset-system";

/// An admin of the running cluster.
pub struct Admin<'a> {
    /// The folders that the cluster uses.
    pub settings: &'a Settings,
    /// Its programs.
    pub tools: &'a Tools,
    /// The progress of the work.
    pub progress: &'a Progress,
}

impl Admin<'_> {
    /// Installs Kueue, which then queues IPUJobs, JobSets, Jobs and Pods, and waits until it is
    /// ready.
    pub fn install_kueue(&self) -> Result<(), KueueError> {
        let folder = self.settings.run.join("kueue");
        make_dir(&folder)?;
        let given = folder.join("configuration.json");
        write_json(&given, &configuration::in_cluster())?;
        let rights = folder.join("rights.json");
        let items = objects::rights_on_jobs();
        write_json(
            &rights,
            &json!({"apiVersion": "v1", "kind": "List", "items": items}),
        )?;
        let image = "controllerManager.manager.image";
        let values = [
            chart::set_configuration(&given),
            format!("--set={image}.repository={}", managers::repository("kueue")),
            format!("--set-string={image}.tag={}", managers::TAG),
            format!("--set={image}.pullPolicy=IfNotPresent"),
            "--set=controllerManager.manager.resources.requests.cpu=50m".to_owned(),
        ];
        self.install("kueue", "charts/kueue", NAMESPACE, &values)?;
        let mut apply = Command::new(self.tools.program("kubectl"));
        apply
            .arg("--kubeconfig")
            .arg(kubeconfig(&self.settings.run, "admin"))
            .args(["apply", "--server-side", "--filename"])
            .arg(rights);
        command::run(&mut apply).map_err(failed("give Kueue its rights on IPUJobs"))
    }

    /// Removes Kueue and its CRDs. No object may remain with a finalizer that Kueue itself removes.
    pub fn remove_kueue(&self) -> Result<(), KueueError> {
        self.remove(RELEASE, NAMESPACE)
    }

    /// Installs JobSet, and waits until it is ready.
    pub fn install_jobset(&self) -> Result<(), KueueError> {
        let values = [
            format!("--set=image.repository={}", managers::repository("jobset")),
            format!("--set-string=image.tag={}", managers::TAG),
            "--set=image.pullPolicy=IfNotPresent".to_owned(),
            "--set=controller.leaderElection.enable=false".to_owned(),
            "--set=controller.resources.requests.cpu=50m".to_owned(),
        ];
        self.install("jobset", "charts/jobset", JOBSET_NAMESPACE, &values)
    }

    /// Removes JobSet, but not its CRD.
    pub fn remove_jobset(&self) -> Result<(), KueueError> {
        self.remove("jobset", JOBSET_NAMESPACE)
    }

    fn remove(&self, release: &str, namespace: &str) -> Result<(), KueueError> {
        let mut uninstall = self.helm(namespace);
        uninstall.args(["uninstall", release, "--wait", "--timeout", "600s"]);
        command::run(&mut uninstall).map_err(failed("remove a manager with Helm"))
    }

    /// Installs the chart of a manager, which has the same name as the release, with an image from
    /// the cache.
    fn install(
        &self,
        name: &str,
        chart: &str,
        namespace: &str,
        values: &[String],
    ) -> Result<(), KueueError> {
        let (settings, progress) = (self.settings, self.progress);
        let image = managers::ensure(settings, progress, name)?;
        let chart = Tools::source(settings, name)?.join(chart);
        progress.run(format!("installed {name} with Helm; it is ready"), || {
            import(&settings.run, self.tools, &[image])?;
            self.upgrade(name, &chart, namespace, values)
        })
    }

    fn upgrade(
        &self,
        release: &str,
        chart: &Path,
        namespace: &str,
        values: &[String],
    ) -> Result<(), KueueError> {
        let mut upgrade = self.helm(namespace);
        upgrade
            .args(["upgrade", "--install", release])
            .arg(chart)
            .arg("--create-namespace")
            .args(["--wait", "--timeout", "600s"])
            .args(values);
        command::run(&mut upgrade).map_err(failed("install a manager with Helm"))
    }

    fn helm(&self, namespace: &str) -> Command {
        let mut helm = Command::new(self.tools.program("helm"));
        helm.args(["--namespace", namespace])
            .arg("--kubeconfig")
            .arg(kubeconfig(&self.settings.run, "admin"));
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(home, self.settings.run.join("helm"));
        }
        helm
    }
}

fn failed(action: &'static str) -> impl FnOnce(command::CommandError) -> KueueError {
    move |source| KueueError::Command { action, source }
}
