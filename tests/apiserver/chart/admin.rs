//! An admin with Helm and kubectl.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cluster::{
    command::{self, CommandError},
    control_plane::pool::Loan,
    progress::Progress,
    settings::Settings,
    tools::Tools,
};

use crate::planes;

/// The Kubernetes version for `helm template` and `helm lint`. An installation reads it from the
/// cluster.
pub(crate) const KUBERNETES: &str = "--kube-version=1.37.2";

/// Helm and kubectl on a control plane. Namespace, release and fullname are all `name`.
pub(crate) struct Admin {
    pub(crate) name: &'static str,
    /// The version of Helm: `helm` is version 3.
    pub(crate) helm: &'static str,
    tools: Tools,
    chart: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    scratch: tempfile::TempDir,
    plane: Option<Loan>,
}

impl Admin {
    /// An admin of a control plane with the CRDs and the namespace.
    pub(crate) async fn new(name: &'static str) -> Self {
        let plane = planes::with_definitions().await;
        let mut admin = Self::of(name, plane.kubeconfig());
        admin.plane = Some(plane);
        admin.kubectl(&["create", "namespace", name]).unwrap();
        admin
    }

    /// Returns an admin with this kubeconfig. Creates nothing.
    pub(crate) fn of(name: &'static str, kubeconfig: PathBuf) -> Self {
        let settings = Settings::from_env().unwrap();
        let progress = Progress::start();
        let tools =
            Tools::fetch_some(&settings, &progress, &["helm", "helm-4", "kubernetes"]).unwrap();
        Self {
            name,
            helm: "helm",
            tools,
            chart: settings.checkout.join("charts/ipu-operator"),
            kubeconfig,
            scratch: tempfile::tempdir().unwrap(),
            plane: None,
        }
    }

    /// Installs or upgrades. The webhooks apply only to the namespace of the test.
    pub(crate) fn helm_upgrade(&self, values: &[&str]) {
        let names = format!(
            "fullnameOverride={0},admissionWebhooks.scope={0}",
            self.name
        );
        let mut args = vec![
            "upgrade",
            "--install",
            self.name,
            self.chart(),
            "--set",
            &names,
        ];
        args.extend(values);
        self.helm(&args).unwrap();
    }

    pub(crate) fn helm(&self, args: &[&str]) -> Result<String, CommandError> {
        let mut helm = Command::new(self.tools.program(self.helm));
        helm.args(args).args(["--namespace", self.name]);
        command::output(self.at_home(&mut helm))
    }

    /// Runs the commands of a document in the top folder of the repository.
    pub(crate) fn shell(&self, script: &str) -> Result<String, CommandError> {
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        for program in ["helm", "kubectl"] {
            let folder = self.tools.program(program).parent().unwrap();
            let mut folders = vec![folder.to_owned()];
            folders.extend(std::env::split_paths(&path));
            path = std::env::join_paths(folders).unwrap();
        }
        let mut shell = Command::new("sh");
        shell.args(["-euc", script]).env("PATH", path);
        shell.current_dir(self.chart.join("../.."));
        command::output(self.at_home(&mut shell))
    }

    /// Keeps the files of Helm and kubectl (repositories, caches) out of the user's folders.
    fn at_home<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let home = self.scratch.path();
        command.env("KUBECONFIG", &self.kubeconfig);
        for variable in [
            "HOME",
            "HELM_CACHE_HOME",
            "HELM_CONFIG_HOME",
            "HELM_DATA_HOME",
        ] {
            command.env(variable, home);
        }
        command
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String, CommandError> {
        let mut kubectl = Command::new(self.tools.program("kubectl"));
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        command::output(kubectl.env("HOME", self.scratch.path()))
    }

    /// Path of Helm or kubectl.
    pub(crate) fn program(&self, name: &str) -> &Path {
        self.tools.program(name)
    }

    pub(crate) fn chart(&self) -> &str {
        self.chart.to_str().unwrap()
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.scratch.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// User name of the operator's account.
    pub(crate) fn account(&self, process: &str) -> String {
        format!("--as=system:serviceaccount:{0}:{0}-{process}", self.name)
    }
}
