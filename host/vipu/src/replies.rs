//! Bounds the memory of the replies of all V-IPU controllers, including faulty ones.
//!
//! Flow: the first `SMALL` bytes of a reply are read at once. The rest needs two permits: one of
//! its controller, and one of the few that all controllers share. Until then, the flow control of
//! HTTP/2 stops the sender. The reply keeps its permits until it is decoded. A slow reply loses
//! them while others wait, so that a controller that stops sending does not delay the others for
//! long. Replies are decoded one after the other, and each keeps no more list entries than the
//! share of its controller.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tonic::body::Body;

use super::codec;
use super::model::{LISTED_MAX, PARTITIONS_MAX};

/// Concurrent reads of one controller. A controller that does not answer delays no other.
pub(super) const READS: usize = 8;

/// Concurrent lookups of partitions on one controller. They leave some reads to its inventory and
/// its version.
pub(super) const LOOKUPS: usize = READS - 2;

/// Largest reply that is read, in bytes: the attributes of some thousand IPUs. A V-POD has at most
/// 256.
pub(super) const REPLY_MAX: usize = 8 << 20;

/// Bytes of a reply that are read without a permit. The status of a partition has some hundred.
const SMALL: usize = 16 << 10;

/// Bytes that a controller may send before they are read: for one reply, and for all. Replies that
/// wait for a permit never fill the connection, because a reply with the permit may need it.
pub(super) const STREAM_WINDOW: u32 = 16 << 10;
pub(super) const CONNECTION_WINDOW: u32 = 256 << 10;

/// Replies larger than `SMALL` that are read at the same time.
const LARGE: usize = 8;

/// Time limit of a large reply while others wait. The largest valid one, of some hundred KiB,
/// arrives within a few milliseconds.
const SLICE: Duration = Duration::from_millis(500);

/// Partitions kept from the list of each controller: as many as the largest V-POD has IPUs. Beyond
/// that, all controllers together may keep as many as one controller may have.
const KEPT_EACH: usize = 256;

/// Number of simultaneously faulty controllers in `MOST`.
const CONTROLLERS: usize = 256;

/// Maximum memory of a connection in the kernel, and of its task with the buffers of TLS for both
/// directions.
const CONNECTION: usize = (128 << 10) + (48 << 10);

/// Readers of a list at the same time: the inventory, the one that replaces it, and the sweep.
const READERS: usize = 3;

/// Maximum memory of the replies of 256 controllers, in bytes. A growing buffer has up to twice the
/// capacity of its content.
pub const MOST: usize = CONTROLLERS
    * (CONNECTION + CONNECTION_WINDOW as usize + READS * 2 * (SMALL + STREAM_WINDOW as usize))
    + LARGE * 2 * REPLY_MAX
    + codec::DECODED
    + READERS * (CONTROLLERS * KEPT_EACH + PARTITIONS_MAX) * LISTED_MAX;

/// A reply came too slowly while others waited.
#[derive(Debug, thiserror::Error)]
#[error(
    "its reply of more than {SMALL} bytes took longer than {SLICE:?} while other controllers waited"
)]
struct Slow;

/// The budget of all controllers. Clones share it.
#[derive(Clone, Debug)]
pub struct Replies(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    large: Arc<Semaphore>,
    /// Number of replies that wait for a shared permit.
    waiting: AtomicUsize,
    decoding: Semaphore,
    /// Partitions that may still be kept beyond `KEPT_EACH`.
    kept: Mutex<usize>,
}

/// The share of one controller in the budget. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Part(Arc<Own>);

#[derive(Debug)]
struct Own {
    all: Replies,
    large: Arc<Semaphore>,
    /// Its share of the partitions beyond `KEPT_EACH`.
    kept: Mutex<usize>,
}

/// Both permits of a large reply: its controller's, and that of all.
type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// A reply in transfer, with the permits that it holds.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    part: Part,
    permits: Arc<OnceLock<Permits>>,
}

/// A received reply. It holds its permits until it is dropped.
#[derive(Debug)]
pub(super) struct Reply<M> {
    bytes: Bytes,
    ticket: Ticket,
    message: PhantomData<M>,
}

impl Default for Replies {
    fn default() -> Self {
        Self(Arc::new(Shared {
            large: Arc::new(Semaphore::new(LARGE)),
            waiting: AtomicUsize::new(0),
            decoding: Semaphore::new(1),
            kept: Mutex::new(PARTITIONS_MAX),
        }))
    }
}

impl Replies {
    /// The share of a further controller.
    pub(super) fn part(&self) -> Part {
        Part(Arc::new(Own {
            all: self.clone(),
            large: Arc::new(Semaphore::new(1)),
            kept: Mutex::new(0),
        }))
    }
}

impl Part {
    /// The permits of one reply.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket {
            part: self.clone(),
            permits: Arc::default(),
        }
    }

    /// Returns how many of the listed partitions may be kept. Those of the controller's previous
    /// list are dropped soon.
    pub(super) fn reserve(&self, listed: usize) -> usize {
        let (mut own, mut left) = (self.0.kept.lock(), self.0.all.0.kept.lock());
        *left += *own;
        *own = listed.saturating_sub(KEPT_EACH).min(*left);
        *left -= *own;
        listed.min(KEPT_EACH + *own)
    }

    async fn permits(&self) -> Permits {
        const OPEN: &str = "the semaphore is never closed";
        let all = &self.0.all.0;
        let own = self.0.large.clone().acquire_owned().await.expect(OPEN);
        let _waiting = Waiting::begin(&all.waiting);
        let shared = all.large.clone().acquire_owned().await.expect(OPEN);
        (own, shared)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        *self.all.0.kept.lock() += *self.kept.get_mut();
    }
}

/// Counts a waiting reply, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ticket {
    /// The body of the reply, read no faster than the budget allows.
    pub(super) fn bound(self, body: Body) -> Body {
        let arriving = Arriving {
            body,
            bytes: 0,
            due: None,
            ticket: self,
        };
        let frames = stream::unfold(arriving, |mut arriving| async {
            let frame = arriving.frame().await?;
            Some((frame, arriving))
        });
        Body::new(StreamBody::new(frames))
    }

    /// The reply, once its bytes are there.
    pub(super) fn reply<M>(self, bytes: Bytes) -> Reply<M> {
        Reply {
            bytes,
            ticket: self,
            message: PhantomData,
        }
    }
}

impl<M: Message + Default> Reply<M> {
    /// Decodes the reply, and returns the value to keep.
    pub(super) async fn take<R>(self, keep: impl FnOnce(M) -> R) -> Result<R, Status> {
        let all = &self.ticket.part.0.all.0;
        let decoding = all.decoding.acquire().await;
        let _permit = decoding.expect("the semaphore is never closed");
        codec::decode(self.bytes).map(keep)
    }
}

/// The body of a reply that is being read.
struct Arriving {
    body: Body,
    bytes: usize,
    /// Time until which it certainly keeps its permits.
    due: Option<Instant>,
    ticket: Ticket,
}

impl Arriving {
    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, Status>> {
        let frame = if self.bytes > SMALL {
            self.frame_of_large().await
        } else {
            self.body.frame().await
        };
        if let Some(Ok(frame)) = &frame {
            self.bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        frame
    }

    async fn frame_of_large(&mut self) -> Option<Result<Frame<Bytes>, Status>> {
        if self.ticket.permits.get().is_none() {
            let permits = self.ticket.part.permits().await;
            self.ticket.permits.get_or_init(|| permits);
        }
        loop {
            let due = *self.due.get_or_insert_with(|| Instant::now() + SLICE);
            if Instant::now() < due
                && let Ok(frame) = timeout_at(due, self.body.frame()).await
            {
                return frame;
            }
            if self.ticket.part.0.all.0.waiting.load(Ordering::Relaxed) > 0 {
                return Some(Err(slow()));
            }
            self.due = None;
        }
    }
}

fn slow() -> Status {
    let mut status = Status::resource_exhausted(Slow.to_string());
    status.set_source(Arc::new(Slow));
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_lists_too_much_takes_nothing_of_what_is_kept_of_others() {
        let all = Replies::default();
        let (first, second) = (all.part(), all.part());
        assert_eq!(first.reserve(10), 10);
        assert_eq!(first.reserve(10_000), 10_000);
        assert_eq!(first.reserve(1 << 17), KEPT_EACH + PARTITIONS_MAX);
        assert_eq!(second.reserve(1 << 17), KEPT_EACH);
        assert_eq!(second.reserve(KEPT_EACH), KEPT_EACH);
        drop(first);
        assert_eq!(second.reserve(1_000), 1_000);
        drop(second);
        assert_eq!(*all.0.kept.lock(), PARTITIONS_MAX);
    }
}
