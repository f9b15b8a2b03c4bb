//! A connection that ends if its client sends no first request, or stops reading a response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

use axum_server::accept::Accept;

/// Time limit in which a client must read more of a response.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the head of a first request has arrived. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived(Arc<AtomicBool>);

impl Arrived {
    /// Records that it has arrived.
    pub(super) fn now(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn has(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A stream with time limits for its client.
pub(super) struct ClientTimeoutStream<S> {
    stream: S,
    arrived: Arrived,
    first: Option<Pin<Box<Sleep>>>,
    sending: Option<Pin<Box<Sleep>>>,
}

impl<S> ClientTimeoutStream<S> {
    /// A stream with a time limit for the head of the first request.
    pub(super) fn new(stream: S, arrived: Arrived, first: Duration) -> Self {
        Self {
            stream,
            arrived,
            first: Some(Box::pin(sleep(first))),
            sending: None,
        }
    }

    /// Ends the stream if it has waited too long for its client.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.sending = None;
            return polled;
        }
        let sending = self
            .sending
            .get_or_insert_with(|| Box::pin(sleep(SEND_TIMEOUT)));
        match sending.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientTimeoutStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.arrived.has() {
            this.first = None;
        }
        if let Some(first) = &mut this.first
            && first.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientTimeoutStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, buffer);
        this.bounded(context, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        this.bounded(context, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(context);
        this.bounded(context, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, buffers);
        this.bounded(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A service of one connection, with the events that its stream needs.
pub(super) trait ConnectionEvents {
    /// The arrival of the first request.
    fn arrived(&self) -> Arrived;

    /// The token that is cancelled when the connection must end.
    fn preempted(&self) -> CancellationToken;
}

/// Accepts like `inner`, and adds time limits for the client to the stream.
#[derive(Clone, Debug)]
pub(super) struct ClientTimeoutAcceptor<A> {
    /// Accepts the connection.
    pub(super) inner: A,
    /// Time limit of the head of the first request.
    pub(super) first: Duration,
}

impl<A, I, V> Accept<I, V> for ClientTimeoutAcceptor<A>
where
    A: Accept<I, V, Service = V>,
    A::Stream: Send + 'static,
    A::Future: Send + 'static,
    V: ConnectionEvents + Send + 'static,
{
    type Stream = ClientTimeoutStream<A::Stream>;
    type Service = V;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, V)>>;

    fn accept(&self, stream: I, service: V) -> Self::Future {
        let (accepted, first) = (self.inner.accept(stream, service), self.first);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let stream = ClientTimeoutStream::new(stream, service.arrived(), first);
            Ok((stream, service))
        })
    }
}
