//! Runs kubectl as a user does, and returns its output.

use std::path::{Path, PathBuf};
use std::process::Output;

use cluster::interrupt;
use tokio::process::Command;

/// A kubectl with the kubeconfig of one cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// The program.
    pub program: PathBuf,
    /// Its kubeconfig.
    pub kubeconfig: PathBuf,
}

/// An error of kubectl.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    /// The program could not be run.
    #[error("failed to run {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// It ended with an unexpected exit status.
    #[error("`kubectl {arguments}` ended with {status}, and said: {said}")]
    Ended {
        /// Its arguments.
        arguments: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its output.
        said: String,
    },
}

impl Kubectl {
    /// Runs kubectl and returns its standard output.
    pub async fn run(&self, arguments: &[&str]) -> Result<String, KubectlError> {
        let output = self.output(arguments).await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(ended(arguments, &output))
    }

    /// `kubectl apply -f FILE`.
    pub async fn apply(&self, file: &Path) -> Result<String, KubectlError> {
        self.run(&["apply", "-f", &file.to_string_lossy()]).await
    }

    /// `kubectl apply -f FILE` for a file that must be refused. Returns the message of the refusal.
    pub async fn apply_refused(&self, file: &Path) -> Result<String, KubectlError> {
        let file = file.to_string_lossy();
        let arguments = ["apply", "-f", file.as_ref()];
        let output = self.output(&arguments).await?;
        if output.status.success() {
            return Err(ended(&arguments, &output));
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// `kubectl delete -f FILE`, which waits until the objects are gone.
    pub async fn delete(&self, file: &Path) -> Result<String, KubectlError> {
        self.run(&["delete", "--timeout=120s", "-f", &file.to_string_lossy()])
            .await
    }

    async fn output(&self, arguments: &[&str]) -> Result<Output, KubectlError> {
        let mut kubectl = Command::new(&self.program);
        if interrupt::is_watched() {
            kubectl.process_group(0);
        }
        kubectl
            .env("KUBECONFIG", &self.kubeconfig)
            .args(arguments)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| KubectlError::Start {
                program: self.program.clone(),
                source,
            })
    }
}

fn ended(arguments: &[&str], output: &Output) -> KubectlError {
    KubectlError::Ended {
        arguments: arguments.join(" "),
        status: output.status,
        said: format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
