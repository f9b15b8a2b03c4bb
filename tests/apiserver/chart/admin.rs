//! An admin with Helm and kubectl on the shared control plane.

use std::{fs, path::PathBuf, process::Command};

use tests::lab::{
    command::{self, CommandError},
    control_plane::ControlPlane,
    progress::Progress,
    settings::Settings,
    tools::Tools,
};

/// What `helm template` and `helm lint` take the cluster for; an install asks the cluster itself.
pub(super) const KUBERNETES: &str = "--kube-version=1.36.3";

/// Helm and kubectl on the shared control plane. Namespace, release and fullname are all `name`, so
/// that the tests of one process do not meet.
pub(super) struct Admin {
    pub(super) name: &'static str,
    tools: Tools,
    chart: PathBuf,
    kubeconfig: PathBuf,
    scratch: tempfile::TempDir,
}

impl Admin {
    pub(super) async fn new(name: &'static str) -> Self {
        let settings = Settings::from_env().unwrap();
        let progress = Progress::start();
        let tools = Tools::fetch_some(&settings, &progress, &["helm", "kubernetes"]).unwrap();
        let control_plane = ControlPlane::shared().await.unwrap();
        let admin = Self {
            name,
            tools,
            chart: settings.checkout.join("charts/ipu-operator"),
            kubeconfig: control_plane.kubeconfig(),
            scratch: tempfile::tempdir().unwrap(),
        };
        admin.kubectl(&["create", "namespace", name]).unwrap();
        admin
    }

    /// Installs or upgrades. The webhooks keep to the namespace of the test.
    pub(super) fn helm_upgrade(&self, values: &[&str]) {
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

    pub(super) fn helm(&self, args: &[&str]) -> Result<String, CommandError> {
        // Helm keeps its own files (repositories, plug-ins) out of the user's folders.
        let home = self.scratch.path();
        let mut helm = Command::new(self.tools.program("helm"));
        helm.args(args).args(["--namespace", self.name]);
        helm.env("KUBECONFIG", &self.kubeconfig).env("HOME", home);
        helm.env("HELM_CACHE_HOME", home)
            .env("HELM_CONFIG_HOME", home)
            .env("HELM_DATA_HOME", home);
        command::output(&mut helm)
    }

    pub(super) fn kubectl(&self, args: &[&str]) -> Result<String, CommandError> {
        let mut kubectl = Command::new(self.tools.program("kubectl"));
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        command::output(kubectl.env("HOME", self.scratch.path()))
    }

    pub(super) fn chart(&self) -> &str {
        self.chart.to_str().unwrap()
    }

    pub(super) fn file(&self, name: &str, content: &str) -> String {
        let path = self.scratch.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// User name of the operator's account.
    pub(super) fn account(&self, process: &str) -> String {
        format!("--as=system:serviceaccount:{0}:{0}-{process}", self.name)
    }
}
