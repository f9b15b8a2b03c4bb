//! The load of one Pod on each port. One machine runs several such Pods and must leave CPU to the
//! Pods whose delay is measured, so each of them sends less than an attacker could.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipu_admission::{MUTATE_PATH, VALIDATE_PATH};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::exchange::{ANSWER, connect_tls, exchange, exchange_tls};
use super::reviews::{NOTES, hostile_review, long_uid, valid};
use super::{Counts, Kind};

/// Idle connections that one Pod keeps open to each port. Nine Pods keep 1,440. This number has
/// once restarted the proxy.
const IDLE: usize = 160;

/// Bodies that one Pod sends byte by byte to each port that reads bodies.
const DRIBBLES: usize = 8;

/// The time between two bytes of such a body.
const BYTE: Duration = Duration::from_millis(100);

/// Invalid tokens that one Pod sends to each port with tokens at the same time.
const TOKENS: usize = 4;

/// Queries that one Pod sends at the same time.
const QUERIES: usize = 4;

/// The pause after an answer or a refusal.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause before a closed idle connection is opened again. A node remembers each connection for
/// two minutes after its end, 262,144 of them here. More than two thousand new ones per second fill
/// that table within two minutes, and the node then drops packets of all its Pods, no matter for
/// which port.
const REOPENED: Duration = Duration::from_secs(15);

/// Longest body that the webhooks read, in bytes.
const BODY_LIMIT: usize = 8 << 20;

/// The reviews for the webhooks. All tasks share one of each.
pub(super) struct Sent {
    hostile: Vec<u8>,
    valid: Vec<Vec<u8>>,
    long_uid: Vec<u8>,
    blanks: Vec<u8>,
}

impl Sent {
    pub(super) fn new() -> Self {
        let valid = NOTES.map(|note| valid(note).to_string().into_bytes());
        Self {
            hostile: hostile_review().into_bytes(),
            valid: valid.into(),
            long_uid: long_uid().to_string().into_bytes(),
            blanks: vec![b' '; BODY_LIMIT],
        }
    }
}

type Shared<'a> = (&'a Arc<Sent>, &'a Arc<Counts>);

/// Repeats an action, and counts each time that it ends.
fn again<F: Future<Output = std::io::Result<()>> + Send + 'static>(
    load: &mut JoinSet<()>,
    (kind, pause): (Kind, Duration),
    counts: &Arc<Counts>,
    act: impl Fn(u64) -> F + Send + Sync + 'static,
) {
    let counts = counts.clone();
    load.spawn(async move {
        for number in 0.. {
            if act(number).await.is_ok() {
                counts.count(kind);
            }
            sleep(pause).await;
        }
    });
}

/// The kind of load, its body, and its path at the webhooks.
type Review = (Kind, fn(&Sent) -> &[u8], &'static str);

/// Loads a port of the webhooks.
pub(super) fn webhooks(load: &mut JoinSet<()>, address: SocketAddr, (sent, counts): Shared<'_>) {
    let whole: [Review; 5] = [
        (Kind::Hostile, |sent| &sent.hostile, VALIDATE_PATH),
        (Kind::Valid, |sent| &sent.valid[0], VALIDATE_PATH),
        (Kind::Valid, |sent| &sent.valid[1], VALIDATE_PATH),
        (Kind::Defaulted, |sent| &sent.valid[0], MUTATE_PATH),
        (Kind::LongUid, |sent| &sent.long_uid, VALIDATE_PATH),
    ];
    for (kind, body, path) in whole {
        let sent = sent.clone();
        again(load, (kind, PAUSE), counts, move |_| {
            let sent = sent.clone();
            async move {
                let body = body(&sent);
                let head = post(path, body.len());
                let answer = exchange_tls(address, &[head.as_bytes(), body]).await?;
                // A review that was refused for lack of capacity has not reached a guest.
                let is_asked = matches!(kind, Kind::Valid | Kind::Defaulted);
                if is_asked && !answer.starts_with("HTTP/1.1 200 ") {
                    return Err(std::io::ErrorKind::ConnectionRefused.into());
                }
                Ok(())
            }
        });
    }
    let all_but_one = sent.clone();
    again(load, (Kind::Unfinished, PAUSE), counts, move |_| {
        let sent = all_but_one.clone();
        async move {
            let head = post(VALIDATE_PATH, BODY_LIMIT);
            let part = [head.as_bytes(), &sent.blanks[1..]];
            exchange_tls(address, &part).await.map(drop)
        }
    });
    for _ in 0..DRIBBLES {
        let sent = sent.clone();
        again(load, (Kind::Dribbled, PAUSE), counts, move |_| {
            let sent = sent.clone();
            async move {
                let head = post(VALIDATE_PATH, BODY_LIMIT);
                dribble(connect_tls(address).await?, &head, &sent.blanks).await
            }
        });
    }
}

/// Sends invalid tokens to a port.
pub(super) fn tokens(
    load: &mut JoinSet<()>,
    address: SocketAddr,
    path: &str,
    counts: &Arc<Counts>,
) {
    for task in 0..TOKENS {
        let path = path.to_owned();
        again(load, (Kind::Token, PAUSE), counts, move |number| {
            let head = format!(
                "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                 authorization: Bearer made-up-{task}-{number}-{address}\r\n\r\n"
            );
            async move { exchange_tls(address, &[head.as_bytes()]).await.map(drop) }
        });
    }
}

/// Loads a port in plain text that answers queries.
pub(super) fn queries(load: &mut JoinSet<()>, address: SocketAddr, (sent, counts): Shared<'_>) {
    const QUESTION: &str = r#"{"size": 1}"#;
    let head = |length| post("/query", length);
    for _ in 0..QUERIES {
        again(load, (Kind::Query, PAUSE), counts, move |_| async move {
            let head = head(QUESTION.len());
            let asked = [head.as_bytes(), QUESTION.as_bytes()];
            exchange(address, &asked).await.map(drop)
        });
    }
    for _ in 0..DRIBBLES {
        let sent = sent.clone();
        again(load, (Kind::Dribbled, PAUSE), counts, move |_| {
            let sent = sent.clone();
            async move {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                dribble(stream, &head(4 << 10), &sent.blanks).await
            }
        });
    }
}

/// Loads a port with TLS that accepts IPUPartitions. It reads a body before it checks a token.
pub(super) fn partitions(load: &mut JoinSet<()>, address: SocketAddr, (sent, counts): Shared<'_>) {
    for _ in 0..DRIBBLES {
        let sent = sent.clone();
        again(load, (Kind::Dribbled, PAUSE), counts, move |_| {
            let sent = sent.clone();
            async move {
                let head = post("/partitions", 16 << 10);
                dribble(connect_tls(address).await?, &head, &sent.blanks).await
            }
        });
    }
}

/// Keeps connections open without sending anything.
pub(super) fn idle(load: &mut JoinSet<()>, address: SocketAddr, counts: &Arc<Counts>) {
    for _ in 0..IDLE {
        again(load, (Kind::Idle, REOPENED), counts, move |_| async move {
            let mut stream = TcpStream::connect(address).await?;
            let mut rest = [0; 64];
            while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
            Ok(())
        });
    }
}

fn post(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    )
}

/// Sends a body byte by byte until the server closes the connection.
async fn dribble(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    head: &str,
    body: &[u8],
) -> std::io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    writer.write_all(head.as_bytes()).await?;
    let send = async {
        for byte in body {
            writer.write_all(std::slice::from_ref(byte)).await?;
            writer.flush().await?;
            sleep(BYTE).await;
        }
        Ok(())
    };
    let mut answer = [0; 64];
    // The server has answered, or has closed the connection.
    tokio::select! {
        sent = timeout(ANSWER, send) => sent?,
        read = reader.read(&mut answer) => read.map(drop),
    }
}
