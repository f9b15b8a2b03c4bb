//! Tells `ipu-operator policy record`, which runs beside the operator in its container, of the calls of
//! guests, at a socket that nobody else can reach.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::fs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use ipu_guest_host::{Heard, Policies};
use ipu_runtime::panics::caught_blocking;

/// Name of the socket, in the folder for compiled guests.
pub const SOCKET: &str = "requests.sock";

/// Most recordings at once: each takes time and memory of the operator.
const LISTENERS: usize = 4;

/// How long to wait where nobody can be let in: there may be too many open files.
const AGAIN: Duration = Duration::from_millis(100);

/// A line that stands where no record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Notice {
    /// So many calls are not told of, since whoever listens is too slow.
    Missed(u64),
    /// There are as many recordings as there may be.
    Busy(usize),
}

/// Tells everybody who comes to the socket of every call from then on, one line each, until `stop`.
/// Where there can be no socket, there are no recordings, and all else goes on.
pub async fn serve(policies: &Policies, folder: &Path, stop: CancellationToken) {
    let path = folder.join(SOCKET);
    let listener = match bind(&path).await {
        Ok(listener) => listener,
        Err(error) => {
            warn!(%error, socket = %path.display(), "requests to guests cannot be recorded");
            return;
        }
    };
    let mut recordings = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = recordings.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) if recordings.len() < LISTENERS => {
                let heard = policies.listen();
                recordings.spawn(recording(stream, heard));
            }
            Ok((mut stream, _)) => {
                // Who does not read it finds the end of the stream.
                let _ = stream.try_write(line(Notice::Busy(LISTENERS)).as_bytes());
                let _ = stream.shutdown().await;
            }
            Err(error) => {
                warn!(%error, "failed to accept a client that records requests");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
    let _ = fs::remove_file(path).await;
}

/// A socket for the operator's own user. What a process left that was killed is removed.
async fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).await?;
    Ok(listener)
}

async fn recording(stream: UnixStream, heard: Receiver<Arc<Heard>>) {
    info!("requests to guests are being recorded");
    // Its error says that the other side has gone, which is how a recording ends.
    let _ = tell(stream, heard).await;
    info!("requests to guests are no longer recorded");
}

/// Writes a line for each call until the other side goes.
async fn tell(stream: UnixStream, mut heard: Receiver<Arc<Heard>>) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let mut ignored = [0; 64];
    loop {
        let line = tokio::select! {
            read = reader.read(&mut ignored) => match read? {
                0 => return Ok(()),
                _ => continue,
            },
            heard = heard.recv() => match heard {
                // A large object takes a while.
                Ok(heard) => {
                    let line = caught_blocking(move || heard.record().line()).await;
                    line.map_err(io::Error::other)?
                }
                Err(RecvError::Lagged(missed)) => line(Notice::Missed(missed)),
                Err(RecvError::Closed) => return Ok(()),
            },
        };
        writer.write_all(line.as_bytes()).await?;
    }
}

fn line(notice: Notice) -> String {
    format!("{}\n", json!(notice))
}
