//! Copies stdin, stdout and stderr of one remote command over the API server's WebSocket.
//!
//! kube's own loop is not used. It sends and receives in turn, so a command that writes more than
//! it reads blocks for ever. It also truncates the output if the server has no half-close.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

/// Channels of the protocol. The first byte of a message is its channel.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Version 5 only: the channel in the second byte has ended.
const CLOSE: u8 = 255;

/// Bytes of stdin in one message.
const CHUNK: usize = 32 * 1024;

/// Detection of a dead connection.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// Period of the pings. They keep the connection open in load balancers, and check the API
    /// server: every WebSocket server answers a ping at once.
    pub ping: Duration,
    /// Time without any message, even without the answer to a ping, after which the connection
    /// counts as dead. A program may write nothing for days.
    pub idle_timeout: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(2),
        }
    }
}

/// The end of a command.
#[derive(Debug, PartialEq)]
pub struct End {
    /// The result, as the API server reports it.
    pub status: Status,
    /// Whether the command was sent any stdin, or wrote any output.
    pub has_exchanged: bool,
}

/// Failure of the stream before the end of the command was known.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection failed.
    #[error("failed to receive from the container; the connection to the API server broke")]
    Receive(#[source] tungstenite::Error),
    /// The connection was closed early.
    #[error("the connection was closed before the command ended, so its result is unknown")]
    Closed,
    /// The API server does not answer pings any more: the connection is dead.
    #[error("the API server no longer answers pings, so the agent closed the connection")]
    Unreachable,
    /// The Status at the end of the command could not be parsed.
    #[error("failed to read how the command ended")]
    Status(#[source] serde_json::Error),
    /// Our own stdout or stderr accepts no more output.
    #[error("failed to write the command's {0}")]
    Write(&'static str, #[source] std::io::Error),
}

/// Copies the streams until the command has ended, and returns its result.
///
/// `half_close`: the server supports version 5 of the protocol. Otherwise the command does not
/// learn of the end of stdin, because closing the connection would truncate its output.
pub async fn carry<S>(
    socket: WebSocketStream<S>,
    (half_close, keep_alive): (bool, KeepAlive),
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin,
    stderr: impl AsyncWrite + Unpin,
) -> Result<End, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (to_server, from_server) = socket.split();
    let taken = Taken::default();
    let mut sending = std::pin::pin!(send(
        to_server,
        (half_close, keep_alive.ping),
        stdin,
        &taken
    ));
    let mut receiving = std::pin::pin!(receive(
        from_server,
        stdout,
        stderr,
        (keep_alive.idle_timeout, &taken)
    ));
    tokio::select! {
        ended = &mut receiving => ended,
        // The command may have closed its stdin and still write. Only its end counts.
        () = &mut sending => {
            taken.nothing_is_sent();
            receiving.await
        }
    }
}

/// Number of stdin messages that the API server has read. It reads messages in order: a command
/// that does not read its stdin blocks the pings behind it.
#[derive(Debug, Default)]
struct Taken {
    sent: AtomicU64,
    received: AtomicU64,
    /// Whether any stdin was sent. `sent` is reset at its end.
    has_sent: AtomicBool,
}

impl Taken {
    /// A ping with the number of messages that were sent before it.
    fn ping(&self) -> Message {
        let sent = self.sent.load(Ordering::Relaxed);
        Message::Ping(sent.to_be_bytes().to_vec().into())
    }

    /// Records that nothing more is sent. From now on, a missing answer always means a dead
    /// connection.
    fn nothing_is_sent(&self) {
        self.sent.store(0, Ordering::Relaxed);
    }

    /// Records the answer to a ping.
    fn answered(&self, payload: &[u8]) {
        if let Ok(count) = payload.try_into() {
            let received = u64::from_be_bytes(count);
            self.received.store(received, Ordering::Relaxed);
        }
    }

    /// Whether the command may not be reading its stdin, so that a missing answer to a ping proves
    /// nothing.
    fn may_be_deaf(&self) -> bool {
        self.received.load(Ordering::Relaxed) < self.sent.load(Ordering::Relaxed)
    }
}

/// Sends stdin until it ends, and pings for as long as it is polled.
async fn send<S>(
    mut to_server: SplitSink<WebSocketStream<S>, Message>,
    (half_close, ping): (bool, Duration),
    mut stdin: impl AsyncRead + Unpin,
    taken: &Taken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = vec![0; CHUNK];
    let mut open = true;
    let mut pings = interval(ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    loop {
        let message = tokio::select! {
            read = stdin.read(&mut buffer), if open => match read {
                Ok(length) if length > 0 => {
                    taken.sent.fetch_add(1, Ordering::Relaxed);
                    taken.has_sent.store(true, Ordering::Relaxed);
                    frame(STDIN, &buffer[..length])
                }
                // An unreadable stdin counts as ended, so that the command does not wait for it.
                Ok(_) | Err(_) => {
                    open = false;
                    if !half_close {
                        continue;
                    }
                    frame(CLOSE, &[STDIN])
                }
            },
            _ = pings.tick() => taken.ping(),
        };
        if to_server.send(message).await.is_err() {
            return;
        }
    }
}

fn frame(channel: u8, payload: &[u8]) -> Message {
    let mut bytes = Vec::with_capacity(payload.len() + 1);
    bytes.push(channel);
    bytes.extend_from_slice(payload);
    Message::binary(bytes)
}

/// Writes the output of the command until the Status at its end. If the command may not be reading
/// its stdin, only the kernel detects a dead connection, after it has retransmitted for about a
/// quarter of an hour.
async fn receive<S>(
    mut from_server: SplitStream<WebSocketStream<S>>,
    mut stdout: impl AsyncWrite + Unpin,
    mut stderr: impl AsyncWrite + Unpin,
    (idle_timeout, taken): (Duration, &Taken),
) -> Result<End, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut has_written = false;
    loop {
        let message = match timeout(idle_timeout, from_server.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(_) if taken.may_be_deaf() => continue,
            Err(_) => return Err(StreamError::Unreachable),
        };
        let bytes = match message.map_err(StreamError::Receive)? {
            Message::Binary(bytes) => bytes,
            Message::Pong(payload) => {
                taken.answered(&payload);
                continue;
            }
            // Nothing follows it, even if the server leaves the connection open.
            Message::Close(_) => break,
            _ => continue,
        };
        match bytes.split_first() {
            Some((&STDOUT, payload)) => {
                has_written |= !payload.is_empty();
                write(&mut stdout, "stdout", payload).await?;
            }
            Some((&STDERR, payload)) => {
                has_written |= !payload.is_empty();
                write(&mut stderr, "stderr", payload).await?;
            }
            // The server opens every channel with an empty message.
            Some((&STATUS, payload)) if !payload.is_empty() => {
                let status = serde_json::from_slice(payload).map_err(StreamError::Status)?;
                let has_exchanged = has_written || taken.has_sent.load(Ordering::Relaxed);
                return Ok(End {
                    status,
                    has_exchanged,
                });
            }
            _ => {}
        }
    }
    Err(StreamError::Closed)
}

async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    stream: &'static str,
    payload: &[u8],
) -> Result<(), StreamError> {
    let failed = |source| StreamError::Write(stream, source);
    to.write_all(payload).await.map_err(failed)?;
    to.flush().await.map_err(failed)
}

#[cfg(test)]
mod tests;
