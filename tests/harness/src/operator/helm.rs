//! The operator's Helm release on the cluster, installed from an unpacked package as an admin does.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use cluster::command::{self, CommandError};
use cluster::lifecycle::Cluster;
use release::package::Unpacked;

use super::NAMESPACE;

/// The release, and the files and options of its installation.
#[derive(Clone, Debug)]
pub struct Release {
    /// Helm.
    helm: PathBuf,
    kubeconfig: PathBuf,
    /// Folder of Helm's own files.
    home: PathBuf,
    /// The chart.
    package: Unpacked,
    /// The options of the installation.
    values: Vec<String>,
}

impl Release {
    /// The release of a cluster. It is not installed yet.
    pub fn new(cluster: &Cluster, package: Unpacked, values: Vec<String>) -> Self {
        Self {
            helm: cluster.tools.program("helm").to_owned(),
            kubeconfig: cluster.kubeconfig(),
            home: cluster.settings.run.join("helm"),
            package,
            values,
        }
    }

    /// Installs the release, or resets its values to those of the installation. Waits until it is
    /// ready.
    pub fn install(&self) -> Result<(), CommandError> {
        let chart = self.package.chart();
        let mut helm = self.helm(&["upgrade", "--install", NAMESPACE]);
        helm.arg(chart)
            .arg("--create-namespace")
            .args(["--wait", "--timeout", "600s"])
            .args(&self.values);
        command::run(&mut helm)
    }

    /// Upgrades the release: these values change (`name=value`), all others remain. Waits until it
    /// is ready.
    pub fn upgrade(&self, values: &[&str]) -> Result<(), CommandError> {
        self.upgrade_with(&[], values)
    }

    /// The same, with the values of these files before the others.
    pub fn upgrade_with(&self, files: &[&Path], values: &[&str]) -> Result<(), CommandError> {
        let chart = self.package.chart();
        let mut helm = self.helm(&["upgrade", NAMESPACE]);
        helm.arg(chart)
            .args(["--reset-then-reuse-values", "--wait", "--timeout", "600s"]);
        for file in files {
            helm.arg("--values").arg(file);
        }
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

    /// The folder with the CRDs of its package.
    pub fn definitions(&self) -> PathBuf {
        self.package.folder.join("crds")
    }

    /// Runs Helm in the namespace of the release, and returns its output.
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
