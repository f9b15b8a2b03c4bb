//! A large and endless reply, and how many bytes of such replies callers have read.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::header::CONTENT_TYPE;

/// The length that the message announces. Its last byte never comes.
pub const CLAIMED: u32 = 2 << 20;

/// Bytes that are sent at once.
const CHUNK: usize = 16 << 10;

/// Bytes that callers have read of the endless replies that are open.
#[derive(Clone, Debug, Default)]
pub struct Taken(Arc<AtomicUsize>);

/// One such reply, until its caller goes away.
struct Endless {
    taken: Taken,
    sent: usize,
}

impl Taken {
    /// The current number of bytes.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Begins a reply.
    pub(super) fn reply(&self) -> Response {
        let endless = Endless {
            taken: self.clone(),
            sent: 0,
        };
        let chunks = stream::unfold(endless, |mut endless| async {
            let chunk = endless.next().await;
            Some((Ok::<_, Infallible>(chunk), endless))
        });
        let headers = [(CONTENT_TYPE, "application/grpc")];
        (headers, Body::from_stream(chunks)).into_response()
    }
}

impl Endless {
    async fn next(&mut self) -> Bytes {
        let [a, b, c, d] = CLAIMED.to_be_bytes();
        let left = CLAIMED as usize - 1 - self.sent.saturating_sub(5);
        let chunk = match self.sent {
            0 => Bytes::copy_from_slice(&[0, a, b, c, d]),
            _ if left == 0 => return std::future::pending().await,
            _ => Bytes::from_static(&[0; CHUNK]).slice(..CHUNK.min(left)),
        };
        self.sent += chunk.len();
        self.taken.0.fetch_add(chunk.len(), Ordering::SeqCst);
        chunk
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.taken.0.fetch_sub(self.sent, Ordering::SeqCst);
    }
}
