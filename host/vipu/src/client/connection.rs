//! The connection to one V-IPU controller: opened on demand, and again after a change of the
//! authentication.

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

use super::methods::Call;
use crate::auth::{Auth, AuthState};
use crate::codec::RawReplies;
use crate::error::VipuError;
use crate::replies::{CONNECTION_WINDOW, Part, REPLY_MAX, Reply, STREAM_WINDOW};

/// The connections to one controller, one at a time.
#[derive(Debug)]
pub(super) struct ConnectionManager {
    controller: ControllerRef,
    connect: Duration,
    auth: watch::Receiver<AuthState>,
    replies: Part,
    last: Mutex<Option<Connection>>,
}

/// A connection, and the authentication that it uses.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    auth: Arc<Auth>,
    channel: Channel,
    replies: Part,
}

impl ConnectionManager {
    /// Connections to `controller`, each with this time limit to connect. None is open yet.
    pub(super) fn new(
        controller: &ControllerRef,
        connect: Duration,
        auth: watch::Receiver<AuthState>,
        replies: Part,
    ) -> Result<Self, VipuError> {
        let connections = ConnectionManager {
            controller: controller.clone(),
            connect,
            auth,
            replies,
            last: Mutex::default(),
        };
        connections.endpoint(&Auth::default())?;
        Ok(connections)
    }

    /// `host:port` of the controller.
    pub(super) fn name(&self) -> &str {
        &self.controller.name
    }

    /// Returns the current connection, or a new one after a change of the authentication. Calls in
    /// progress finish on the old connection.
    pub(super) fn now(&self) -> Result<Connection, VipuError> {
        let state = self.auth.borrow().clone();
        let auth = state.map_err(VipuError::Auth)?;
        let mut last = self.last.lock();
        if let Some(connection) = last.as_ref()
            && Arc::ptr_eq(&connection.auth, &auth)
        {
            return Ok(connection.clone());
        }
        let channel = self.endpoint(&auth)?.connect_lazy();
        let replies = self.replies.clone();
        let connection = Connection {
            auth,
            channel,
            replies,
        };
        Ok(last.insert(connection).clone())
    }

    /// Forgets the current connection, so that the next call opens a new one.
    pub(super) fn forget(&self) {
        *self.last.lock() = None;
    }

    fn endpoint(&self, auth: &Auth) -> Result<Endpoint, VipuError> {
        let ControllerRef { host, port, .. } = &self.controller;
        let tls = auth.tls(host);
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

impl Connection {
    /// Sends one call with the credentials, and returns its undecoded reply. The request contains
    /// the `timeout`, if there is one.
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
        let mut request = self.auth.request(message);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        let path = PathAndQuery::from_static(C::PATH);
        let reply = grpc
            .unary(request, path, RawReplies::<C>::default())
            .await?;
        Ok(ticket.reply(reply.into_inner()))
    }

    /// Short hash of the user id in calls. `None`: calls contain none.
    pub(super) fn account(&self) -> Option<&str> {
        self.auth.account()
    }
}
