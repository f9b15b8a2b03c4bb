//! Carries stdin, stdout and stderr of one remote command over the API server's WebSocket.
//!
//! kube's own loop is not used: it sends and receives in turn, so that a command which answers more
//! than it has read stops for ever, and it cuts the output where the server has no half-close.

use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval};
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

/// How often a quiet connection is shown to be alive, for the load balancers on its way.
const PING: Duration = Duration::from_secs(30);

/// Why the stream broke before the command's end was known.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection failed.
    #[error("failed to receive from the container; the connection to the API server broke")]
    Receive(#[source] tungstenite::Error),
    /// The connection was closed in the middle.
    #[error("failed to learn how the command ended: the connection was closed before its end")]
    Closed,
    /// The end of the command was told in words that are not understood.
    #[error("failed to read how the command ended")]
    Status(#[source] serde_json::Error),
    /// Our own stdout or stderr does not take more.
    #[error("failed to write the command's {stream}")]
    Write {
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Carries the streams until the command has ended, and answers how it ended.
///
/// `half_close` says whether the server knows protocol version 5. Where it does not, the end of
/// stdin cannot be told to the command: closing the connection would cut its output.
pub async fn carry<S>(
    socket: WebSocketStream<S>,
    half_close: bool,
    stdin: impl AsyncRead + Unpin,
    stdout: impl AsyncWrite + Unpin,
    stderr: impl AsyncWrite + Unpin,
) -> Result<Status, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (to_server, from_server) = socket.split();
    let mut sending = std::pin::pin!(send(to_server, half_close, stdin));
    let mut receiving = std::pin::pin!(receive(from_server, stdout, stderr));
    tokio::select! {
        ended = &mut receiving => ended,
        // The command may have closed its stdin and still be writing: its end is what counts.
        () = &mut sending => receiving.await,
    }
}

/// Sends stdin until it ends, and pings for as long as it is polled.
async fn send<S>(
    mut to_server: SplitSink<WebSocketStream<S>, Message>,
    half_close: bool,
    mut stdin: impl AsyncRead + Unpin,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = vec![0; CHUNK];
    let mut open = true;
    let mut pings = interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    loop {
        let message = tokio::select! {
            read = stdin.read(&mut buffer), if open => match read {
                Ok(length) if length > 0 => frame(STDIN, &buffer[..length]),
                // An unreadable stdin is an ended one: the command must not wait for it.
                Ok(_) | Err(_) => {
                    open = false;
                    if !half_close {
                        continue;
                    }
                    frame(CLOSE, &[STDIN])
                }
            },
            _ = pings.tick() => Message::Ping(Vec::new().into()),
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

/// Writes out what the command says, until the Status that ends it.
async fn receive<S>(
    mut from_server: SplitStream<WebSocketStream<S>>,
    mut stdout: impl AsyncWrite + Unpin,
    mut stderr: impl AsyncWrite + Unpin,
) -> Result<Status, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = from_server.next().await {
        let bytes = match message.map_err(StreamError::Receive)? {
            Message::Binary(bytes) => bytes,
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
    let failed = |source| StreamError::Write { stream, source };
    to.write_all(payload).await.map_err(failed)?;
    to.flush().await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{SinkExt, StreamExt};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
    use tokio::io::DuplexStream;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::{StreamError, carry};

    async fn sockets() -> (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>) {
        // Small, so that a side which does not read soon stops the other from writing.
        let (near, far) = tokio::io::duplex(4096);
        (
            WebSocketStream::from_raw_socket(near, Role::Client, None).await,
            WebSocketStream::from_raw_socket(far, Role::Server, None).await,
        )
    }

    fn said(channel: u8, text: &[u8]) -> Message {
        Message::binary([&[channel], text].concat())
    }

    #[derive(Debug)]
    struct Carried {
        end: Result<Status, StreamError>,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    }

    async fn run(near: WebSocketStream<DuplexStream>, half_close: bool, stdin: &[u8]) -> Carried {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let carried = carry(near, half_close, stdin, &mut stdout, &mut stderr);
        let end = tokio::time::timeout(Duration::from_secs(20), carried)
            .await
            .expect("the stream must end by itself");
        Carried {
            end,
            stdout,
            stderr,
        }
    }

    #[tokio::test]
    async fn an_echo_of_more_than_fits_in_between_comes_back_whole() {
        let (near, mut far) = sockets().await;
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let echo = tokio::spawn(async move {
            while let Some(Ok(message)) = far.next().await {
                let bytes = message.into_data();
                match bytes.first() {
                    Some(0) => far.send(said(1, &bytes[1..])).await.unwrap(),
                    Some(255) => break,
                    _ => {}
                }
            }
            far.send(said(2, b"done\n")).await.unwrap();
            far.send(said(3, br#"{"status":"Success"}"#)).await.unwrap();
        });
        let carried = run(near, true, &sent).await;
        echo.await.unwrap();
        assert_eq!(carried.end.unwrap().status.as_deref(), Some("Success"));
        assert_eq!(carried.stderr, b"done\n");
        assert!(carried.stdout == sent, "{} bytes", carried.stdout.len());
    }

    #[tokio::test]
    async fn without_half_close_the_output_after_the_end_of_stdin_is_not_lost() {
        let (near, mut far) = sockets().await;
        let server = tokio::spawn(async move {
            let first = far.next().await.unwrap().unwrap();
            assert_eq!(first, said(0, b"in"));
            far.send(said(1, b"late")).await.unwrap();
            far.send(said(3, br#"{"status":"Success"}"#)).await.unwrap();
        });
        let carried = run(near, false, b"in").await;
        server.await.unwrap();
        assert_eq!(carried.stdout, b"late");
        assert!(carried.end.is_ok());
    }

    #[tokio::test]
    async fn a_connection_that_ends_early_and_a_status_that_is_none_are_errors() {
        let (near, mut far) = sockets().await;
        far.send(said(3, b"")).await.unwrap();
        far.send(said(1, b"half")).await.unwrap();
        far.close(None).await.unwrap();
        let carried = run(near, true, b"").await;
        assert!(
            matches!(carried.end, Err(StreamError::Closed)),
            "{carried:?}"
        );
        assert_eq!(carried.stdout, b"half");

        let (near, mut far) = sockets().await;
        far.send(said(3, b"not json")).await.unwrap();
        let carried = run(near, true, b"").await;
        assert!(
            matches!(carried.end, Err(StreamError::Status(_))),
            "{carried:?}"
        );
    }

    #[tokio::test]
    async fn unknown_channels_and_text_are_passed_over() {
        let (near, mut far) = sockets().await;
        for message in [
            Message::text("hello"),
            said(9, b"?"),
            Message::binary(vec![]),
        ] {
            far.send(message).await.unwrap();
        }
        far.send(said(3, br#"{"status":"Success"}"#)).await.unwrap();
        let carried = run(near, true, b"").await;
        assert!(carried.end.is_ok() && carried.stdout.is_empty());
    }
}
