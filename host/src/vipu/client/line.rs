//! The connection to one V-IPU controller: made when it is needed, and anew when access has changed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::api::ipupartition::ControllerRef;
use crate::vipu::access::{Access, Standing};
use crate::vipu::error::VipuError;
use crate::vipu::proto::user_service_client::UserServiceClient;
use crate::vipu::proto::version_service_client::VersionServiceClient;

/// Largest reply that is read, in bytes: the attributes of some thousand IPUs, while a V-POD has at most 256.
pub(super) const REPLY_MAX: usize = 8 << 20;

/// The connections to one controller, one at a time.
#[derive(Debug)]
pub(super) struct Lines {
    controller: ControllerRef,
    connect: Duration,
    access: watch::Receiver<Standing>,
    last: Mutex<Option<Line>>,
}

/// A connection, and the access that it was made with.
#[derive(Clone, Debug)]
pub(super) struct Line {
    access: Arc<Access>,
    channel: Channel,
}

impl Lines {
    /// Connections to `controller`, each made within `connect`; none is made yet.
    pub(super) fn new(
        controller: &ControllerRef,
        connect: Duration,
        access: watch::Receiver<Standing>,
    ) -> Result<Self, VipuError> {
        let lines = Lines {
            controller: controller.clone(),
            connect,
            access,
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
        Ok(last.insert(Line { access, channel }).clone())
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
            .tcp_keepalive(Some(Duration::from_mins(1)));
        match tls {
            Some(tls) => endpoint.tls_config(tls).map_err(VipuError::Address),
            None => Ok(endpoint),
        }
    }
}

impl Line {
    /// The calls about partitions.
    pub(super) fn users(&self) -> UserServiceClient<Channel> {
        UserServiceClient::new(self.channel.clone()).max_decoding_message_size(REPLY_MAX)
    }

    /// The call about the server.
    pub(super) fn version(&self) -> VersionServiceClient<Channel> {
        VersionServiceClient::new(self.channel.clone())
    }

    /// A short hash of the user id that is sent; missing where none is.
    pub(super) fn account(&self) -> Option<&str> {
        self.access.account()
    }

    /// A request with the credentials in it.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        self.access.request(message)
    }
}
