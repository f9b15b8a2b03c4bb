//! Streams the calls of guests to `ipu-operator policy record`, which runs in the container of the
//! operator, through a Unix socket that only this user can open.

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

use ipu_guest_host::{GuestHost, RecordedCall};
use ipu_runtime::panics::caught_blocking;

/// Name of the socket, in the folder for compiled guests.
pub const SOCKET: &str = "requests.sock";

/// Most concurrent recordings: each takes time and memory of the operator.
const MAX_RECORDINGS: usize = 4;

/// Delay after a failed accept, such as for too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A line of the stream that is not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Notice {
    /// The number of calls that were dropped, because the client reads too slowly.
    Missed(u64),
    /// The limit of concurrent recordings is reached.
    Busy(usize),
}

/// Serves recordings at the socket until `stop`: one line for each call. Without a socket the
/// operator logs a warning and continues.
pub async fn serve(host: &GuestHost, folder: &Path, stop: CancellationToken) {
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
            Ok((stream, _)) if recordings.len() < MAX_RECORDINGS => {
                let calls = host.record_calls();
                recordings.spawn(record(stream, calls));
            }
            Ok((mut stream, _)) => {
                // A client that does not read it sees the end of the stream.
                let _ = stream.try_write(line(Notice::Busy(MAX_RECORDINGS)).as_bytes());
                let _ = stream.shutdown().await;
            }
            Err(error) => {
                warn!(%error, "failed to accept a client that records requests");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    let _ = fs::remove_file(path).await;
}

/// Binds a socket for this user. Removes the socket of a previous process.
async fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).await?;
    Ok(listener)
}

async fn record(stream: UnixStream, calls: Receiver<Arc<RecordedCall>>) {
    info!("requests to guests are being recorded");
    // A recording ends when the client disconnects, which is an error of the stream.
    let _ = stream_calls(stream, calls).await;
    info!("requests to guests are no longer recorded");
}

/// Writes a line for each call until the client disconnects.
async fn stream_calls(
    stream: UnixStream,
    mut calls: Receiver<Arc<RecordedCall>>,
) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let mut ignored = [0; 64];
    loop {
        let line = tokio::select! {
            read = reader.read(&mut ignored) => match read? {
                0 => return Ok(()),
                _ => continue,
            },
            call = calls.recv() => match call {
                // Redacting a large object takes a while.
                Ok(call) => {
                    let line = caught_blocking(move || call.record().line()).await;
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
