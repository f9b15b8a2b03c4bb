//! The operator's Helm release on the cluster, as an admin has it: installed from an unpacked package.

use std::{path::PathBuf, process::Command};

use cluster::command::{self, CommandError};
use cluster::lifecycle::Cluster;
use release::package::Unpacked;

use super::NAMESPACE;

/// The release, and what its admin runs.
#[derive(Clone, Debug)]
pub struct Release {
    /// Helm.
    helm: PathBuf,
    kubeconfig: PathBuf,
    /// Where Helm keeps its own files.
    home: PathBuf,
    /// What it is installed from.
    package: Unpacked,
    /// The options that it is installed with.
    values: Vec<String>,
}

impl Release {
    /// The release of a cluster, which is not installed yet.
    pub fn new(cluster: &Cluster, package: Unpacked, values: Vec<String>) -> Self {
        Self {
            helm: cluster.tools.program("helm").to_owned(),
            kubeconfig: cluster.kubeconfig(),
            home: cluster.settings.run.join("helm"),
            package,
            values,
        }
    }

    /// Installs it, or gives it back the values that it was installed with; waits until it is ready.
    pub fn install(&self) -> Result<(), CommandError> {
        let chart = self.package.chart();
        let mut helm = self.helm(&["upgrade", "--install", NAMESPACE]);
        helm.arg(chart)
            .arg("--create-namespace")
            .args(["--wait", "--timeout", "180s"])
            .args(&self.values);
        command::run(&mut helm)
    }

    /// Upgrades it: all values stay but these (`name=value`). Waits until it is ready.
    pub fn upgrade(&self, values: &[&str]) -> Result<(), CommandError> {
        let chart = self.package.chart();
        let mut helm = self.helm(&["upgrade", NAMESPACE]);
        helm.arg(chart)
            .args(["--reset-then-reuse-values", "--wait", "--timeout", "180s"]);
        for value in values {
            helm.args(["--set", value]);
        }
        command::run(&mut helm)
    }

    /// The same release, installed from another package with the same values.
    #[must_use]
    pub fn from(&self, package: Unpacked) -> Self {
        Self {
            package,
            ..self.clone()
        }
    }

    /// The folder of the CRDs of its package.
    pub fn definitions(&self) -> PathBuf {
        self.package.folder.join("crds")
    }

    /// Runs Helm in the namespace of the release, and gives what it prints.
    pub fn run(&self, arguments: &[&str]) -> Result<String, CommandError> {
        command::output(&mut self.helm(arguments))
    }

    fn helm(&self, arguments: &[&str]) -> Command {
        let mut helm = Command::new(&self.helm);
        helm.args(arguments)
            .args(["--namespace", NAMESPACE])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .current_dir(&self.package.folder);
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(home, &self.home);
        }
        helm
    }
}
