//! A client of one V-IPU controller: every call of its user API, with deadlines and typed errors.
//!
//! Guarantees: create, remove and reset are sent at most once. Only reads are tried again, and only
//! while the controller cannot be reached. No HTTP/2 ping is ever sent: servers written in Go drop
//! clients that ping more often than every five minutes or on an idle connection.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use super::error::VipuError;
use super::model::{
    self, CreateRequest, GcdConfig, Inventory, ListedPartition, PartitionState, ReadyState, Truth,
};
use super::proto;
use super::proto::user_service_client::UserServiceClient;
use super::proto::version_service_client::VersionServiceClient;
use crate::api::ipupartition::ControllerRef;

/// Largest reply that is read, in bytes: the attributes of some ten thousand IPUs.
const REPLY_MAX: usize = 64 << 20;

/// Reads are tried again only within so long after they began.
const RETRIES_WITHIN: Duration = Duration::from_secs(2);

/// How long calls may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// To connect.
    pub connect: Duration,
    /// A read, with all its retries.
    pub read: Duration,
    /// A create, remove or reset. Forming a partition takes minutes at times.
    pub change: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            connect: Duration::from_secs(3),
            read: Duration::from_secs(30),
            change: Duration::from_mins(5),
        }
    }
}

/// A client of one V-IPU controller. Clones share one connection, which is made when it is first
/// used and again whenever it was lost.
#[derive(Clone, Debug)]
pub struct VipuClient {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    name: String,
    endpoint: Endpoint,
    channel: RwLock<Channel>,
    deadlines: Deadlines,
}

impl VipuClient {
    /// A client of `controller`. Nothing is sent yet. Must be called within a tokio runtime.
    pub fn new(controller: &ControllerRef, deadlines: Deadlines) -> Result<Self, VipuError> {
        let host = if controller.host.contains(':') {
            format!("[{}]", controller.host)
        } else {
            controller.host.clone()
        };
        let endpoint = Endpoint::from_shared(format!("http://{host}:{}", controller.port))
            .map_err(|source| VipuError::Address {
                controller: controller.name.clone(),
                source,
            })?
            .connect_timeout(deadlines.connect)
            .tcp_keepalive(Some(Duration::from_mins(1)));
        Ok(VipuClient {
            inner: Arc::new(Inner {
                name: controller.name.clone(),
                channel: RwLock::new(endpoint.connect_lazy()),
                endpoint,
                deadlines,
            }),
        })
    }

    /// `host:port` of the controller.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The version of the controller's server.
    pub async fn version(&self) -> Result<String, VipuError> {
        let reply = self
            .read("GetVersion", || async {
                VersionServiceClient::new(self.channel())
                    .get_version(proto::VersionRequest {})
                    .await
            })
            .await?;
        Ok(reply.version)
    }

    /// Makes a partition and waits until it is formed. Sent at most once.
    pub async fn create(&self, request: &CreateRequest) -> Result<(), VipuError> {
        let request = self.with_deadline(proto::CreatePartitionRequest::from(request));
        self.change("CreatePartition", self.users().create_partition(request))
            .await?;
        Ok(())
    }

    /// Removes whatever partition has this id now. With `force` the controller ignores errors while
    /// it removes. Sent at most once.
    pub async fn remove(&self, id: &str, force: bool) -> Result<(), VipuError> {
        let request = self.with_deadline(proto::RemovePartitionRequest {
            partition_id: id.to_owned(),
            force,
        });
        self.change("RemovePartition", self.users().remove_partition(request))
            .await?;
        Ok(())
    }

    /// Resets whatever partition has this id now. With `relocatable` the controller may move it to
    /// other IPUs. Sent at most once.
    pub async fn reset(&self, id: &str, relocatable: bool) -> Result<(), VipuError> {
        let request = self.with_deadline(proto::ResetPartitionRequest {
            partition_id: id.to_owned(),
            relocatable,
        });
        self.change("ResetPartition", self.users().reset_partition(request))
            .await?;
        Ok(())
    }

    /// Where one partition stands, as GetPartitionStatus tells it.
    pub async fn status(&self, id: &str) -> Result<PartitionState, VipuError> {
        const METHOD: &str = "GetPartitionStatus";
        let reply = self
            .read(METHOD, || async {
                let request = proto::GetPartitionStatusRequest {
                    partition_id: id.to_owned(),
                };
                self.users().get_partition_status(request).await
            })
            .await?;
        let status = reply
            .status
            .ok_or_else(|| self.incomplete(METHOD, "status"))?;
        Ok(status.into())
    }

    /// Every partition that the controller shows, whoever made it.
    pub async fn list(&self) -> Result<Vec<ListedPartition>, VipuError> {
        let reply = self
            .read("ListPartitions", || async {
                let request = proto::ListPartitionsRequest::default();
                self.users().list_partitions(request).await
            })
            .await?;
        Ok(reply.partitions.into_iter().map(Into::into).collect())
    }

    /// How many IPUs the controller has and how many of them are in partitions.
    pub async fn inventory(&self) -> Result<Inventory, VipuError> {
        let (reply, partitions) = futures::try_join!(
            self.read("ListIPUAttributes", || async {
                let request = proto::ListIpuAttributesRequest::default();
                self.users().list_ipu_attributes(request).await
            }),
            self.list()
        )?;
        Ok(Inventory::new(model::total_ipus(&reply), &partitions))
    }

    /// How the process of GCD `gcd` attaches to the IPUs of partition `id`.
    pub async fn ipuof_config(&self, id: &str, gcd: u32) -> Result<GcdConfig, VipuError> {
        const METHOD: &str = "GetPartitionIpuofConfig";
        let reply = self
            .read(METHOD, || async {
                let request = proto::GetPartitionIpuofConfigRequest {
                    partition_id: id.to_owned(),
                    gcd_id: Some(proto::get_partition_ipuof_config_request::GcdId { id: gcd }),
                };
                self.users().get_partition_ipuof_config(request).await
            })
            .await?;
        let config = reply.ipuof_config.unwrap_or_default();
        let gcd = config.gcd_configs.into_iter().next();
        Ok(gcd
            .ok_or_else(|| self.incomplete(METHOD, "GCD configuration"))?
            .into())
    }

    /// What the controller has of `id`.
    ///
    /// Flow: a status answers at once. Where the status is refused, for whatever reason, the list of
    /// partitions decides, since the code for "there is none" is not published. An error means that
    /// the truth is not known.
    pub async fn truth(&self, id: &str) -> Result<Truth, VipuError> {
        let state = match self.status(id).await {
            Ok(state) => Some(state),
            Err(error @ VipuError::Unreachable { .. }) => return Err(error),
            Err(_) => self.listed_state(id).await?,
        };
        Ok(match state {
            Some(state) if state.ready_state != ReadyState::Removed => Truth::Present(state),
            _ => Truth::Absent,
        })
    }

    /// The state of `id` where the list shows it, although its status was refused: the status once
    /// more, since it may have come in between, else the little that the list tells.
    async fn listed_state(&self, id: &str) -> Result<Option<PartitionState>, VipuError> {
        let partitions = self.list().await?;
        let Some(listed) = partitions.iter().find(|partition| partition.id == id) else {
            return Ok(None);
        };
        Ok(Some(match self.status(id).await {
            Ok(state) => state,
            Err(_) => PartitionState::from(listed),
        }))
    }

    /// Sends one call that changes something, once.
    async fn change<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, VipuError> {
        self.within(self.inner.deadlines.change, call)
            .await
            .map_err(|status| VipuError::from_status(self.name(), method, status))
    }

    /// Sends one call that only reads, again after a short pause where the controller cannot be
    /// reached; all of it within the deadline of reads. An attempt that failed slowly, since nobody
    /// answers at that address at all, is not made again: its caller has waited long enough.
    async fn read<T, C>(
        &self,
        method: &'static str,
        call: impl FnMut() -> C,
    ) -> Result<T, VipuError>
    where
        C: Future<Output = Result<Response<T>, Status>>,
    {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_times(2);
        let began = Instant::now();
        let calls = call
            .retry(pauses)
            .when(|status| status.code() == Code::Unavailable && began.elapsed() < RETRIES_WITHIN);
        self.within(self.inner.deadlines.read, calls)
            .await
            .map_err(|status| VipuError::from_status(self.name(), method, status))
    }

    /// Waits for a call until its deadline. A connection that let a deadline pass may be dead
    /// without knowing it (its peer lost power), so that the next call gets a new one.
    async fn within<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        if let Ok(result) = tokio::time::timeout(deadline, call).await {
            return result.map(Response::into_inner);
        }
        *self
            .inner
            .channel
            .write()
            .unwrap_or_else(PoisonError::into_inner) = self.inner.endpoint.connect_lazy();
        let text = format!("no answer within {} s", deadline.as_secs_f32());
        Err(Status::deadline_exceeded(text))
    }

    /// A request that tells the server how long somebody waits for its answer: a little longer than
    /// this client does, so that it is the client's own deadline that ends the call here.
    fn with_deadline<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.inner.deadlines.change + Duration::from_secs(1));
        request
    }

    fn users(&self) -> UserServiceClient<Channel> {
        UserServiceClient::new(self.channel()).max_decoding_message_size(REPLY_MAX)
    }

    fn channel(&self) -> Channel {
        self.inner
            .channel
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn incomplete(&self, method: &'static str, missing: &'static str) -> VipuError {
        VipuError::Incomplete {
            controller: self.name().to_owned(),
            method,
            missing,
        }
    }
}
