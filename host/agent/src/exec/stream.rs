//! Carries stdin, stdout and stderr of one remote command over the API server's WebSocket.
//!
//! kube's own loop is not used: it sends and receives in turn, so that a command which answers more
//! than it has read stops for ever, and it cuts the output where the server has no half-close.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

/// Channels of the protocol: the first byte of every message.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Version 5 only: the channel that the second byte names has ended.
const CLOSE: u8 = 255;

/// Bytes of stdin in one message.
const CHUNK: usize = 32 * 1024;

/// How a quiet connection is watched.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often it is shown to be alive, for the load balancers on its way, and the API server asked
    /// whether it is: every WebSocket server answers a ping at once.
    pub ping: Duration,
    /// How long nothing may come, not even the answer to a ping, before it counts as cut. A program may be
    /// silent for days.
    pub silence: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(30),
            silence: Duration::from_mins(2),
        }
    }
}

/// Why the stream broke before the command's end was known.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection failed.
    #[error("failed to receive from the container; the connection to the API server broke")]
    Receive(#[source] tungstenite::Error),
    /// The connection was closed in the middle.
    #[error("failed to learn how the command ended: the connection was closed before its end")]
    Closed,
    /// The API server does not answer pings any more: the connection was cut somewhere on its way.
    #[error(
        "failed to hear from the API server, which answers no ping any more; the connection was cut"
    )]
    Silent,
    /// The end of the command was told in words that are not understood.
    #[error("failed to read how the command ended")]
    Status(#[source] serde_json::Error),
    /// Our own stdout or stderr does not take more.
    #[error("failed to write the command's {0}")]
    Write(&'static str, #[source] std::io::Error),
}

/// Carries the streams until the command has ended, and answers how it ended.
///
/// `half_close` says whether the server knows protocol version 5. Where it does not, the end of
/// stdin cannot be told to the command: closing the connection would cut its output.
pub async fn carry<S>(
    socket: WebSocketStream<S>,
    (half_close, pace): (bool, Pace),
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin,
    stderr: impl AsyncWrite + Unpin,
) -> Result<Status, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (to_server, from_server) = socket.split();
    let taken = Taken::default();
    let mut sending = std::pin::pin!(send(to_server, (half_close, pace.ping), stdin, &taken));
    let mut receiving =
        std::pin::pin!(receive(from_server, stdout, stderr, (pace.silence, &taken)));
    tokio::select! {
        ended = &mut receiving => ended,
        // The command may have closed its stdin and still be writing: its end is what counts.
        () = &mut sending => {
            taken.nothing_is_sent();
            receiving.await
        }
    }
}

/// How much of stdin the API server has taken, in messages. It reads what is sent in its order: a command
/// that is deaf keeps it from a ping behind that.
#[derive(Debug, Default)]
struct Taken {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Taken {
    /// A ping that says how much was sent before it.
    fn ping(&self) -> Message {
        let sent = self.sent.load(Ordering::Relaxed);
        Message::Ping(sent.to_be_bytes().to_vec().into())
    }

    /// Nothing is sent any more, so that every silence is a sign.
    fn nothing_is_sent(&self) {
        self.sent.store(0, Ordering::Relaxed);
    }

    /// Takes in the answer to a ping.
    fn answered(&self, payload: &[u8]) {
        if let Ok(count) = payload.try_into() {
            let received = u64::from_be_bytes(count);
            self.received.store(received, Ordering::Relaxed);
        }
    }

    /// Whether the command may be deaf, so that no answer to a ping is no sign.
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
                    frame(STDIN, &buffer[..length])
                }
                // An unreadable stdin is an ended one: the command must not wait for it.
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

/// Writes out what the command says, until the Status that ends it. Where the command may be deaf, a cut
/// connection is told by the kernel, which sends what was not acknowledged again for about a quarter of an
/// hour.
async fn receive<S>(
    mut from_server: SplitStream<WebSocketStream<S>>,
    mut stdout: impl AsyncWrite + Unpin,
    mut stderr: impl AsyncWrite + Unpin,
    (silence, taken): (Duration, &Taken),
) -> Result<Status, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let message = match timeout(silence, from_server.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(_) if taken.may_be_deaf() => continue,
            Err(_) => return Err(StreamError::Silent),
        };
        let bytes = match message.map_err(StreamError::Receive)? {
            Message::Binary(bytes) => bytes,
            Message::Pong(payload) => {
                taken.answered(&payload);
                continue;
            }
            // Nothing follows it, also where the server leaves the connection open.
            Message::Close(_) => break,
            _ => continue,
        };
        match bytes.split_first() {
            Some((&STDOUT, payload)) => write(&mut stdout, "stdout", payload).await?,
            Some((&STDERR, payload)) => write(&mut stderr, "stderr", payload).await?,
            // The server opens every channel with an empty message.
            Some((&STATUS, payload)) if !payload.is_empty() => {
                return serde_json::from_slice(payload).map_err(StreamError::Status);
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
