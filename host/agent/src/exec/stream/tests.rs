//! One command over a WebSocket in memory: what arrives, and what counts as its end.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{End, KeepAlive, StreamError, carry};

const QUICK: KeepAlive = KeepAlive {
    ping: Duration::from_millis(50),
    idle_timeout: Duration::from_secs(2),
};

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
    end: Result<End, StreamError>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

async fn run(near: WebSocketStream<DuplexStream>, half_close: bool, stdin: &[u8]) -> Carried {
    run_at(near, (half_close, stdin), KeepAlive::default()).await
}

async fn run_at(
    near: WebSocketStream<DuplexStream>,
    (half_close, stdin): (bool, &[u8]),
    keep_alive: KeepAlive,
) -> Carried {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let carried = carry(
        near,
        (half_close, keep_alive),
        stdin,
        &mut stdout,
        &mut stderr,
    );
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
    assert_eq!(
        carried.end.unwrap().status.status.as_deref(),
        Some("Success")
    );
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
async fn a_connection_that_is_cut_and_not_closed_is_noticed() {
    let (near, mut far) = sockets().await;
    far.send(said(1, b"half")).await.unwrap();
    // The far side is there, and neither reads nor writes any more.
    let carried = run_at(near, (true, b""), QUICK).await;
    assert!(
        matches!(carried.end, Err(StreamError::Unreachable)),
        "{carried:?}"
    );
    assert_eq!(carried.stdout, b"half");
}

#[tokio::test]
async fn a_command_without_output_continues_as_long_as_pings_are_answered() {
    let (near, mut far) = sockets().await;
    let pings = 120;
    let server = tokio::spawn(async move {
        let mut heard = 0;
        while heard < pings {
            // Reading answers pings.
            let message = far.next().await.unwrap().unwrap();
            heard += usize::from(message.is_ping());
        }
        far.send(said(3, br#"{"status":"Success"}"#)).await.unwrap();
        far
    });
    let carried = run_at(near, (true, b"in"), QUICK).await;
    assert!(carried.end.is_ok(), "{carried:?}");
    drop(server.await.unwrap());
}

#[tokio::test]
async fn a_command_that_is_deaf_for_long_is_no_cut_connection() {
    let (near, mut far) = sockets().await;
    let server = tokio::spawn(async move {
        tokio::time::sleep(3 * QUICK.idle_timeout).await;
        far.send(said(3, br#"{"status":"Success"}"#)).await.unwrap();
        far
    });
    let carried = run_at(near, (true, b"nobody reads it"), QUICK).await;
    assert!(carried.end.is_ok(), "{carried:?}");
    drop(server.await.unwrap());
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

#[tokio::test]
async fn a_command_has_exchanged_nothing_until_stdin_or_output_passes() {
    let refused = br#"{"status":"Failure","message":"Internal error occurred: error sending request: refused"}"#;
    for (stdin, output, has_exchanged) in [
        (&b""[..], &b""[..], false),
        (b"", b"x", true),
        (b"x", b"", true),
    ] {
        let (near, mut far) = sockets().await;
        let server = tokio::spawn(async move {
            // The stdin, or its end.
            far.next().await.unwrap().unwrap();
            far.send(said(1, output)).await.unwrap();
            far.send(said(3, refused)).await.unwrap();
            far
        });
        let carried = run(near, true, stdin).await;
        assert_eq!(carried.end.unwrap().has_exchanged, has_exchanged);
        server.await.unwrap();
    }
}
