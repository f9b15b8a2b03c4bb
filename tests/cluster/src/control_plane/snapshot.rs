//! etcd's own snapshot and restore, as an admin does them.

use std::fs::{remove_dir_all, write};
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{ControlPlane, ControlPlaneError};
use crate::command::{self, CommandError};
use crate::files::{At, FileError};
use crate::http::{self, HttpError};
use crate::progress::Progress;
use crate::settings::{Settings, SettingsError};
use crate::supervisor::Supervisor;
use crate::tools::{Tools, ToolsError};

/// Number of skipped revisions, so that none is used twice: far more than were made since the
/// snapshot.
const BUMP: &str = "--bump-revision=1000000000";

/// Failure to make or restore a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// etcd returned none.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The reply of etcd is not a snapshot.
    #[error("failed to read the snapshot that etcd gave")]
    Malformed(#[source] serde_json::Error),
    /// A part of it is not valid base64.
    #[error("failed to read a part of the snapshot that etcd gave")]
    Encoding(#[source] base64::DecodeError),
    /// A file could not be written or removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folders are unknown.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// etcdutl is missing.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// etcdutl failed.
    #[error("failed to restore the snapshot")]
    Restore(#[source] CommandError),
    /// The control plane did not start again.
    #[error(transparent)]
    Start(#[from] ControlPlaneError),
}

/// One message of `Maintenance/Snapshot`, as etcd's gateway sends it.
#[derive(Deserialize)]
struct Message {
    result: Part,
}

#[derive(Deserialize)]
struct Part {
    /// A part of the file, in base64. The last part ends with the checksum.
    blob: String,
}

impl ControlPlane {
    /// Takes a snapshot of etcd, as `etcdctl snapshot save` does.
    pub async fn snapshot(&self) -> Result<PathBuf, SnapshotError> {
        let url = format!("{}/v3/maintenance/snapshot", self.etcd());
        let answer = http::request("POST", &url, "{}").await?;
        let mut file = Vec::new();
        for message in serde_json::Deserializer::from_str(&answer).into_iter::<Message>() {
            let part = message.map_err(SnapshotError::Malformed)?.result;
            let bytes = STANDARD.decode(part.blob);
            file.extend(bytes.map_err(SnapshotError::Encoding)?);
        }
        let path = self.scratch.path().join("snapshot.db");
        write(&path, file).at("write", &path)?;
        Ok(path)
    }

    /// Ends both programs, restores a snapshot with the commands of `restore.md`, and starts them
    /// again.
    pub async fn restore(&mut self, snapshot: &Path) -> Result<(), SnapshotError> {
        let settings = Settings::from_env()?;
        let tools = Tools::fetch_some(&settings, &Progress::start(), &["etcdutl"])?;
        self.supervisor.end();
        let (data, peer) = (&self.flags.data, self.flags.peer());
        remove_dir_all(data).at("remove", data)?;
        let mut restore = Command::new(tools.program("etcdutl"));
        restore.args(["snapshot", "restore"]).arg(snapshot);
        restore.arg("--data-dir").arg(data);
        restore.arg(format!("--initial-cluster=default={peer}"));
        restore.arg(format!("--initial-advertise-peer-urls={peer}"));
        restore.args([BUMP, "--mark-compacted"]);
        command::run(&mut restore).map_err(SnapshotError::Restore)?;
        let started = Supervisor::start(self.programs.clone());
        self.supervisor = started.map_err(ControlPlaneError::Start)?;
        Ok(self.ready().await?)
    }
}
