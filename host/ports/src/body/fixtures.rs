//! Bodies of requests of a hostile client, for the tests of several packages.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use futures::stream;

/// A byte in a large buffer: hyper receives a segment of one byte in this way.
struct Segment {
    bytes: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Segment {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..1]
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body that arrives byte by byte, and the maximum number of its buffers that were allocated at
/// the same time.
pub fn byte_by_byte(text: &[u8]) -> (Body, Arc<AtomicUsize>) {
    let (alive, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let kept = most.clone();
    let text = text.to_vec();
    let segments = text.into_iter().map(move |byte| {
        let now = alive.fetch_add(1, Ordering::Relaxed) + 1;
        kept.fetch_max(now, Ordering::Relaxed);
        let mut bytes = vec![0; 8 << 10];
        bytes[0] = byte;
        let alive = alive.clone();
        Ok::<_, Infallible>(Bytes::from_owner(Segment { bytes, alive }))
    });
    (Body::from_stream(stream::iter(segments)), most)
}
