//! The plugin of kubectl with the kubeconfig of an admin, as a program.

use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::wait::eventually;
use tests::debug_operator;

/// The plugin, and the kubeconfig that it uses.
pub(crate) struct Plugin {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Plugin {
    /// The plugin of an admin.
    pub(crate) async fn of(kubeconfig: &Path) -> Self {
        // An initial build takes minutes, and blocks.
        let program = tokio::task::spawn_blocking(debug_operator::plugin);
        Self {
            program: program.await.unwrap().unwrap(),
            kubeconfig: kubeconfig.to_owned(),
        }
    }

    /// A command of the plugin.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// Returns the output of a command that succeeds, or all that another one prints.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output();
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(text + &String::from_utf8_lossy(&output.stderr))
    }

    /// Returns the page of `kubectl ipu why`, once it contains all of this.
    pub(crate) async fn why(&self, object: &str, parts: &[&str]) -> String {
        eventually(&format!("why {object} prints {parts:?}"), async || {
            let page = self.run(&["why", object])?;
            let is_complete = parts.iter().all(|part| page.contains(part));
            if is_complete { Ok(page) } else { Err(page) }
        })
        .await
    }
}
