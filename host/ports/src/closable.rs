//! A connection that ends when its permit is preempted, even during a handshake, a head or a body.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::client_timeout::ConnectionEvents;

/// A stream that another task can close.
pub(super) struct Closable<S> {
    stream: S,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Closable<S> {
    fn new(stream: S, closed: CancellationToken) -> Self {
        let closed = Box::pin(closed.cancelled_owned());
        Self { stream, closed }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Closable<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.closed.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Closable<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, buffer)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Makes each stream end when the permit of its connection is preempted.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosableAcceptor;

impl<I, V: ConnectionEvents> Accept<I, V> for ClosableAcceptor {
    type Stream = Closable<I>;
    type Service = V;
    type Future = Ready<io::Result<(Closable<I>, V)>>;

    fn accept(&self, stream: I, service: V) -> Self::Future {
        let stream = Closable::new(stream, service.preempted());
        ready(Ok((stream, service)))
    }
}
