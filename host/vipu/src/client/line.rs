//! The connection to one V-IPU controller: made when it is needed, and anew when access has changed.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use ipu_api::ipupartition::ControllerRef;
use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt;

use super::calls::Call;
use crate::access::{Access, Standing};
use crate::codec::RawReplies;
use crate::error::VipuError;
use crate::replies::{CONNECTION_WINDOW, Part, REPLY_MAX, Reply, STREAM_WINDOW};

/// The connections to one controller, one at a time.
#[derive(Debug)]
pub(super) struct Lines {
    controller: ControllerRef,
    connect: Duration,
    access: watch::Receiver<Standing>,
    replies: Part,
    last: Mutex<Option<Line>>,
}

/// A connection, and the access that it was made with.
#[derive(Clone, Debug)]
pub(super) struct Line {
    access: Arc<Access>,
    channel: Channel,
    replies: Part,
}

impl Lines {
    /// Connections to `controller`, each made within `connect`; none is made yet.
    pub(super) fn new(
        controller: &ControllerRef,
        connect: Duration,
        access: watch::Receiver<Standing>,
        replies: Part,
    ) -> Result<Self, VipuError> {
        let lines = Lines {
            controller: controller.clone(),
            connect,
            access,
            replies,
            last: Mutex::default(),
        };
        lines.endpoint(&Access::default())?;
        Ok(lines)
    }

    /// `host:port` of the controller.
    pub(super) fn name(&self) -> &str {
        &self.controller.name
    }

    /// The connection of now, or a new one where access changed since it was made: what is under way
    /// on the old one comes to its end there.
    pub(super) fn now(&self) -> Result<Line, VipuError> {
        let standing = self.access.borrow().clone();
        let access = standing.map_err(VipuError::Access)?;
        let mut last = self.last.lock();
        if let Some(line) = last.as_ref()
            && Arc::ptr_eq(&line.access, &access)
        {
            return Ok(line.clone());
        }
        let channel = self.endpoint(&access)?.connect_lazy();
        let replies = self.replies.clone();
        let line = Line {
            access,
            channel,
            replies,
        };
        Ok(last.insert(line).clone())
    }

    /// The last connection is not used for another call.
    pub(super) fn forget(&self) {
        *self.last.lock() = None;
    }

    fn endpoint(&self, access: &Access) -> Result<Endpoint, VipuError> {
        let ControllerRef { host, port, .. } = &self.controller;
        let tls = access.tls(host);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}:{port}"))
            .map_err(VipuError::Address)?
            .connect_timeout(self.connect)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .tcp_keepalive(Some(Duration::from_mins(1)));
        match tls {
            Some(tls) => endpoint.tls_config(tls).map_err(VipuError::Address),
            None => Ok(endpoint),
        }
    }
}

impl Line {
    /// Sends one call, with the credentials in it, and answers its reply as it came. Where there is a `timeout`, the
    /// server is told of it.
    pub(super) async fn call<C: Call>(
        &self,
        message: C,
        timeout: Option<Duration>,
    ) -> Result<Reply<C::Reply>, Status> {
        let ticket = self.replies.ticket();
        let bound = ticket.clone();
        let channel = self
            .channel
            .clone()
            .map_response(move |response| response.map(|body| bound.bound(body)));
        let mut grpc = Grpc::new(channel).max_decoding_message_size(REPLY_MAX);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::from_error(error.into()))?;
        let mut request = self.access.request(message);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        let path = PathAndQuery::from_static(C::PATH);
        let reply = grpc
            .unary(request, path, RawReplies::<C>::default())
            .await?;
        Ok(ticket.reply(reply.into_inner()))
    }

    /// A short hash of the user id that is sent; missing where none is.
    pub(super) fn account(&self) -> Option<&str> {
        self.access.account()
    }
}
