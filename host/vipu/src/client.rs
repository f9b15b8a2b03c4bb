//! A client of one V-IPU controller: every call of its user API, with deadlines and typed errors.
//!
//! Guarantees: create, remove and reset are sent at most once. Only reads are tried again, and only
//! while the controller cannot be reached. No HTTP/2 ping is ever sent: servers written in Go drop
//! clients that ping more often than every five minutes or on an idle connection.

mod connection;
mod methods;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use ipu_api::ipupartition::ControllerRef;
use tokio::sync::{Semaphore, watch};
use tonic::{Code, Status};
use tracing::Instrument;

use super::auth::{self, AuthState};
use super::create_scope::CreateScope;
use super::error::VipuError;
use super::model::{
    self, CreateRequest, Device, GcdConfig, Inventory, ListedPartition, Lookup, PartitionState,
    ReadyState,
};
use super::proto;
use super::replies::{LOOKUPS, Part, READS, Replies};
use connection::ConnectionManager;
use methods::Call;

/// Maximum number of GCDs whose IPUs are requested: as many as the largest V-POD has IPU-Machines.
const GCDS_ASKED: u32 = 64;

/// Time since the first attempt in which a read may be retried.
const RETRIES_WITHIN: Duration = Duration::from_secs(2);

/// Deadlines of calls.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Deadline to connect.
    pub connect: Duration,
    /// Deadline of a read with all its retries.
    pub read: Duration,
    /// Deadline of a create, remove or reset. Forming a partition can take minutes.
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

/// A client of one V-IPU controller. Clones share one connection. It opens at the first call, and
/// again after a failure or a change of the certificates or credentials.
#[derive(Clone, Debug)]
pub struct VipuClient {
    pub(super) inner: Arc<Inner>,
    scope: CreateScope,
}

#[derive(Debug)]
pub(super) struct Inner {
    connections: ConnectionManager,
    deadlines: Deadlines,
    reads: Semaphore,
    lookups: Semaphore,
    replies: Part,
}

impl VipuClient {
    /// A client of `controller`, in plain text and without credentials. It sends nothing yet. It
    /// must be used within a tokio runtime.
    pub fn new(controller: &ControllerRef, deadlines: Deadlines) -> Result<Self, VipuError> {
        Self::with_auth(controller, deadlines, auth::plain())
    }

    /// A client of `controller` that authenticates each call with the current value of `auth`.
    pub fn with_auth(
        controller: &ControllerRef,
        deadlines: Deadlines,
        auth: watch::Receiver<AuthState>,
    ) -> Result<Self, VipuError> {
        Self::within_budget(controller, deadlines, auth, &Replies::default())
    }

    /// A client with a budget for the memory of its replies.
    pub(super) fn within_budget(
        controller: &ControllerRef,
        deadlines: Deadlines,
        auth: watch::Receiver<AuthState>,
        replies: &Replies,
    ) -> Result<Self, VipuError> {
        let replies = replies.part();
        let connections =
            ConnectionManager::new(controller, deadlines.connect, auth, replies.clone())?;
        Ok(VipuClient {
            inner: Arc::new(Inner {
                connections,
                deadlines,
                reads: Semaphore::new(READS),
                lookups: Semaphore::new(LOOKUPS),
                replies,
            }),
            scope: CreateScope::default(),
        })
    }

    /// The same client, which creates partitions in this part of the controller.
    #[must_use]
    pub fn creating_in(self, scope: CreateScope) -> Self {
        VipuClient { scope, ..self }
    }

    /// `host:port` of the controller.
    pub fn name(&self) -> &str {
        self.inner.connections.name()
    }

    /// The version of the controller's server.
    pub async fn version(&self) -> Result<String, VipuError> {
        let version = |reply: proto::VersionReply| model::named(&reply.version);
        self.read(proto::VersionRequest {}, version).await
    }

    /// Creates a partition and waits until it is formed. Sent at most once.
    pub async fn create(&self, request: &CreateRequest) -> Result<(), VipuError> {
        let mut message = proto::CreatePartitionRequest::from(request);
        self.scope.add_to(&mut message);
        let is_about = |reply: proto::CreatePartitionReply| {
            is_about::<proto::CreatePartitionRequest>(&request.id, &reply.partition_id)
        };
        self.change(message, is_about).await?
    }

    /// Removes the partition that has this id now. With `force`, the controller ignores errors of
    /// the removal. Sent at most once.
    pub async fn remove(&self, id: &str, force: bool) -> Result<(), VipuError> {
        let message = proto::RemovePartitionRequest {
            partition_id: id.to_owned(),
            force,
        };
        self.change(message, drop).await
    }

    /// Resets the partition that has this id now. With `relocatable`, the controller may move it to
    /// other IPUs. Sent at most once.
    pub async fn reset(&self, id: &str, relocatable: bool) -> Result<(), VipuError> {
        let message = proto::ResetPartitionRequest {
            partition_id: id.to_owned(),
            relocatable,
        };
        self.change(message, drop).await
    }

    /// The state of one partition, from GetPartitionStatus.
    pub async fn status(&self, id: &str) -> Result<PartitionState, VipuError> {
        type Request = proto::GetPartitionStatusRequest;
        let request = Request {
            partition_id: id.to_owned(),
        };
        let state = |reply: proto::GetPartitionStatusReply| {
            let status = reply.status.ok_or(incomplete::<Request>("status"))?;
            is_about::<Request>(id, &status.partition_id)?;
            Ok(status.into())
        };
        self.read(request, state).await?
    }

    /// Lists the partitions of all owners on the controller: at least as many as a V-POD can have,
    /// and more if the memory budget allows it.
    pub async fn list(&self) -> Result<Vec<ListedPartition>, VipuError> {
        let (partitions, _) = self.listing().await?;
        Ok(partitions)
    }

    /// The same, and the number of IPUs in the omitted partitions.
    async fn listing(&self) -> Result<(Vec<ListedPartition>, u32), VipuError> {
        let keep = |reply| {
            let partitions = model::listed(reply);
            let most = self.inner.replies.reserve(partitions.len());
            model::truncate(partitions, most)
        };
        self.read(proto::ListPartitionsRequest::default(), keep)
            .await
    }

    /// The number of IPUs of the controller, and the number of IPUs in partitions.
    pub async fn inventory(&self) -> Result<Inventory, VipuError> {
        let count = |reply| model::total_ipus(&reply);
        let counted = self.read(proto::ListIpuAttributesRequest::default(), count);
        let (ipus, (partitions, more)) = futures::try_join!(counted, self.listing())?;
        Ok(Inventory::new(ipus, partitions).and_used(more))
    }

    /// The configuration with which the process of GCD `gcd` attaches to the IPUs of partition
    /// `id`.
    pub async fn ipuof_config(&self, id: &str, gcd: u32) -> Result<GcdConfig, VipuError> {
        type Request = proto::GetPartitionIpuofConfigRequest;
        let request = Request {
            partition_id: id.to_owned(),
            gcd_id: Some(proto::get_partition_ipuof_config_request::GcdId { id: gcd }),
        };
        let config = |reply: proto::GetPartitionIpuofConfigReply| {
            let config = reply.ipuof_config.unwrap_or_default();
            config.gcd_configs.into_iter().next().map(GcdConfig::from)
        };
        let config = self.read(request, config).await?;
        config.ok_or(incomplete::<Request>("GCD configuration"))
    }

    /// Difference between the size of an active partition and the request, if its controller
    /// reports it. `None` also if the controller does not answer.
    pub async fn size_mismatch(&self, id: &str, ipus: u32, gcds: u32) -> Option<String> {
        let config = self.ipuof_config(id, 0).await.ok()?;
        model::size_mismatch(&config, ipus, gcds)
    }

    /// The IPUs of a partition, as far as its controller reports them: those of all GCDs, or none.
    pub async fn devices(&self, id: &str, gcds: u32) -> Vec<Device> {
        let configs = (0..gcds.min(GCDS_ASKED)).map(|gcd| self.ipuof_config(id, gcd));
        match futures::future::try_join_all(configs).await {
            Ok(configs) => configs.into_iter().flat_map(|gcd| gcd.devices).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Short hash of the V-IPU user id in current calls. `None`: calls contain none.
    pub fn account(&self) -> Option<String> {
        let connection = self.inner.connections.now().ok()?;
        connection.account().map(str::to_owned)
    }

    /// Looks up partition `id`, which was requested under the current account.
    pub async fn lookup(&self, id: &str) -> Result<Lookup, VipuError> {
        self.lookup_as(id, self.account().as_deref()).await
    }

    /// Looks up partition `id`, which was requested under `account`.
    ///
    /// A status answers at once. If the status is refused, the list of partitions decides, because
    /// the code for a missing partition is not published. A list may contain only what its caller
    /// may see, and NotFound may hide a partition of another user: neither is an answer to another
    /// account than the one of the request. An error means that the state is unknown.
    pub async fn lookup_as(&self, id: &str, account: Option<&str>) -> Result<Lookup, VipuError> {
        // Hundreds may wait for their turn, which counts in no deadline. The semaphore is never
        // closed.
        let _permit = self.inner.lookups.acquire().await;
        match self.status(id).await {
            Ok(state) if state.ready_state == ReadyState::Removed => return Ok(Lookup::Absent),
            Ok(state) => return Ok(Lookup::Present(state)),
            Err(
                error @ (VipuError::Unreachable(_) | VipuError::Auth(_) | VipuError::Denied { .. }),
            ) => return Err(error),
            Err(_) => {}
        }
        match self.listed_state(id).await? {
            Some(state) if state.ready_state != ReadyState::Removed => Ok(Lookup::Present(state)),
            None if self.account().as_deref() != account => Err(VipuError::OtherAccount),
            Some(_) | None => Ok(Lookup::Absent),
        }
    }

    /// Returns the state of `id` if the list contains it although its status was refused. It reads
    /// the status again, because the partition may be new. If that fails, it returns the state from
    /// the list entry.
    async fn listed_state(&self, id: &str) -> Result<Option<PartitionState>, VipuError> {
        // The whole list is searched, regardless of its length.
        let find = |reply| {
            let mut partitions = model::listed(reply).into_iter();
            partitions.find(|partition| partition.id == id)
        };
        let request = proto::ListPartitionsRequest::default();
        let Some(listed) = self.read(request, find).await? else {
            return Ok(None);
        };
        Ok(Some(match self.status(id).await {
            Ok(state) => state,
            Err(_) => PartitionState::from(&listed),
        }))
    }

    /// Sends one call that changes something, once. The timeout in the request is a little longer
    /// than the deadline of this client, so that this client ends the call.
    async fn change<C: Call, R>(
        &self,
        message: C,
        take: impl FnOnce(C::Reply) -> R,
    ) -> Result<R, VipuError> {
        let connection = self.inner.connections.now()?;
        let deadline = self.inner.deadlines.change;
        let timeout = Some(deadline + Duration::from_secs(1));
        let call = async { connection.call(message, timeout).await?.take(take).await };
        self.with_deadline(C::METHOD, deadline, Box::pin(call))
            .await
    }

    /// Sends a read. It retries after a short pause while the controller cannot be reached, within
    /// the deadline of reads. It does not retry an attempt that failed slowly: nothing answers at
    /// that address, and the caller has waited long enough.
    ///
    /// `take` extracts the value to keep from the reply.
    async fn read<C: Call, R>(
        &self,
        message: C,
        take: impl FnOnce(C::Reply) -> R,
    ) -> Result<R, VipuError> {
        let connection = self.inner.connections.now()?;
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_times(2);
        let began = Instant::now();
        let calls = async {
            // The semaphore is never closed.
            let _permit = self.inner.reads.acquire().await;
            let calls = (|| connection.call(message.clone(), None))
                .retry(pauses)
                .when(|status| {
                    status.code() == Code::Unavailable && began.elapsed() < RETRIES_WITHIN
                });
            calls.await?.take(take).await
        };
        self.with_deadline(C::METHOD, self.inner.deadlines.read, Box::pin(calls))
            .await
    }

    /// Waits for a call until its deadline. After a missed deadline, the next call gets a new
    /// connection: the old one may be dead unnoticed, for example after a power failure of the
    /// peer. The call is boxed because its state takes kilobytes, which every caller would contain.
    async fn with_deadline<T>(
        &self,
        method: &'static str,
        deadline: Duration,
        call: Pin<Box<impl Future<Output = Result<T, Status>>>>,
    ) -> Result<T, VipuError> {
        let span = tracing::trace_span!(
            "vipu",
            method,
            controller = self.name(),
            rpc.system = "grpc",
            rpc.method = method,
        );
        let call = tokio::time::timeout(deadline, call.instrument(span));
        let result = call.await.unwrap_or_else(|_| {
            self.inner.connections.forget();
            let text = format!("no answer within {} s", deadline.as_secs_f32());
            Err(Status::deadline_exceeded(text))
        });
        result.map_err(|status| VipuError::from_status(method, status))
    }
}

/// Checks that an answer is about the requested partition. An answer without an id passes.
fn is_about<C: Call>(asked: &str, answered: &str) -> Result<(), VipuError> {
    if answered.is_empty() || answered == asked {
        return Ok(());
    }
    Err(VipuError::OtherPartition {
        method: C::METHOD,
        asked: asked.to_owned(),
        answered: model::named(answered),
    })
}

fn incomplete<C: Call>(missing: &'static str) -> VipuError {
    VipuError::Incomplete {
        method: C::METHOD,
        missing,
    }
}
