//! A client of one V-IPU controller: every call of its user API, with deadlines and typed errors.
//!
//! Guarantees: create, remove and reset are sent at most once. Only reads are tried again, and only
//! while the controller cannot be reached. No HTTP/2 ping is ever sent: servers written in Go drop
//! clients that ping more often than every five minutes or on an idle connection.

mod line;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use tokio::sync::{Semaphore, watch};
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;

use super::access::{self, Standing};
use super::codec;
use super::error::VipuError;
use super::model::{
    self, CreateRequest, Device, GcdConfig, Inventory, ListedPartition, PartitionState, ReadyState,
    Truth,
};
use super::proto;
use crate::api::ipupartition::ControllerRef;
use line::{Line, Lines, REPLY_MAX};

/// GCDs whose IPUs are asked for, at most: as many as the largest V-POD has IPU-Machines.
const GCDS_ASKED: u32 = 64;

/// Reads of one controller at the same time, so that the replies of one that lies take a bounded memory. A controller
/// that does not answer holds up nobody else.
const READS: usize = 8;

/// Most memory that the replies of one controller take, in bytes: what is received, in a buffer that grows, and what it
/// is decoded to.
pub const REPLIES: usize = READS * (2 * REPLY_MAX + codec::DECODED);

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
/// used and again whenever it was lost or the certificates and credentials are others.
#[derive(Clone, Debug)]
pub struct VipuClient {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    lines: Lines,
    deadlines: Deadlines,
    reads: Semaphore,
}

impl VipuClient {
    /// A client of `controller`, in plain text and without credentials. Nothing is sent yet. Must be
    /// used within a tokio runtime.
    pub fn new(controller: &ControllerRef, deadlines: Deadlines) -> Result<Self, VipuError> {
        Self::with_access(controller, deadlines, access::plain())
    }

    /// A client of `controller` that speaks to it as `access` says at the time of each call.
    pub fn with_access(
        controller: &ControllerRef,
        deadlines: Deadlines,
        access: watch::Receiver<Standing>,
    ) -> Result<Self, VipuError> {
        let lines = Lines::new(controller, deadlines.connect, access)?;
        Ok(VipuClient {
            inner: Arc::new(Inner {
                lines,
                deadlines,
                reads: Semaphore::new(READS),
            }),
        })
    }

    /// `host:port` of the controller.
    pub fn name(&self) -> &str {
        self.inner.lines.name()
    }

    /// The version of the controller's server.
    pub async fn version(&self) -> Result<String, VipuError> {
        let call = |line: Line| async move {
            let request = line.request(proto::VersionRequest {});
            line.version().get_version(request).await
        };
        let version = |reply: proto::VersionReply| model::named(&reply.version);
        self.read("GetVersion", call, version).await
    }

    /// Makes a partition and waits until it is formed. Sent at most once.
    pub async fn create(&self, request: &CreateRequest) -> Result<(), VipuError> {
        const METHOD: &str = "CreatePartition";
        let line = self.inner.lines.now()?;
        let message = proto::CreatePartitionRequest::from(request);
        let message = self.with_deadline(line.request(message));
        let reply = self
            .change(METHOD, line.users().create_partition(message))
            .await?;
        is_about(METHOD, &request.id, &reply.partition_id)
    }

    /// Removes whatever partition has this id now. With `force` the controller ignores errors while
    /// it removes. Sent at most once.
    pub async fn remove(&self, id: &str, force: bool) -> Result<(), VipuError> {
        let line = self.inner.lines.now()?;
        let message = self.with_deadline(line.request(proto::RemovePartitionRequest {
            partition_id: id.to_owned(),
            force,
        }));
        self.change("RemovePartition", line.users().remove_partition(message))
            .await?;
        Ok(())
    }

    /// Resets whatever partition has this id now. With `relocatable` the controller may move it to
    /// other IPUs. Sent at most once.
    pub async fn reset(&self, id: &str, relocatable: bool) -> Result<(), VipuError> {
        let line = self.inner.lines.now()?;
        let message = self.with_deadline(line.request(proto::ResetPartitionRequest {
            partition_id: id.to_owned(),
            relocatable,
        }));
        self.change("ResetPartition", line.users().reset_partition(message))
            .await?;
        Ok(())
    }

    /// Where one partition stands, as GetPartitionStatus tells it.
    pub async fn status(&self, id: &str) -> Result<PartitionState, VipuError> {
        const METHOD: &str = "GetPartitionStatus";
        let call = |line: Line| async move {
            let request = line.request(proto::GetPartitionStatusRequest {
                partition_id: id.to_owned(),
            });
            line.users().get_partition_status(request).await
        };
        let state = |reply: proto::GetPartitionStatusReply| {
            let status = reply.status.ok_or(incomplete(METHOD, "status"))?;
            is_about(METHOD, id, &status.partition_id)?;
            Ok(status.into())
        };
        self.read(METHOD, call, state).await?
    }

    /// Every partition that the controller shows, whoever made it.
    pub async fn list(&self) -> Result<Vec<ListedPartition>, VipuError> {
        let call = |line: Line| async move {
            let request = line.request(proto::ListPartitionsRequest::default());
            line.users().list_partitions(request).await
        };
        self.read("ListPartitions", call, model::listed).await
    }

    /// How many IPUs the controller has and how many of them are in partitions.
    pub async fn inventory(&self) -> Result<Inventory, VipuError> {
        let call = |line: Line| async move {
            let request = line.request(proto::ListIpuAttributesRequest::default());
            line.users().list_ipu_attributes(request).await
        };
        let count = |reply| model::total_ipus(&reply);
        let counted = self.read("ListIPUAttributes", call, count);
        let (ipus, partitions) = futures::try_join!(counted, self.list())?;
        Ok(Inventory::new(ipus, partitions))
    }

    /// How the process of GCD `gcd` attaches to the IPUs of partition `id`.
    pub async fn ipuof_config(&self, id: &str, gcd: u32) -> Result<GcdConfig, VipuError> {
        const METHOD: &str = "GetPartitionIpuofConfig";
        let call = |line: Line| async move {
            let request = line.request(proto::GetPartitionIpuofConfigRequest {
                partition_id: id.to_owned(),
                gcd_id: Some(proto::get_partition_ipuof_config_request::GcdId { id: gcd }),
            });
            line.users().get_partition_ipuof_config(request).await
        };
        let config = |reply: proto::GetPartitionIpuofConfigReply| {
            let config = reply.ipuof_config.unwrap_or_default();
            config.gcd_configs.into_iter().next().map(GcdConfig::from)
        };
        let config = self.read(METHOD, call, config).await?;
        config.ok_or(incomplete(METHOD, "GCD configuration"))
    }

    /// How an active partition differs from what was asked for, where its controller tells so. A
    /// controller that does not answer this tells nothing.
    pub async fn misfit(&self, id: &str, ipus: u32, gcds: u32) -> Option<String> {
        let config = self.ipuof_config(id, 0).await.ok()?;
        model::misfit(&config, ipus, gcds)
    }

    /// The IPUs of a partition, as far as its controller tells of them: those of all GCDs, or none.
    pub async fn devices(&self, id: &str, gcds: u32) -> Vec<Device> {
        let configs = (0..gcds.min(GCDS_ASKED)).map(|gcd| self.ipuof_config(id, gcd));
        match futures::future::try_join_all(configs).await {
            Ok(configs) => configs.into_iter().flat_map(|gcd| gcd.devices).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// A short hash of the V-IPU user id under which the controller is asked now; missing where none is sent.
    pub fn account(&self) -> Option<String> {
        let line = self.inner.lines.now().ok()?;
        line.account().map(str::to_owned)
    }

    /// What the controller has of `id`, which was asked for under the account of now.
    pub async fn truth(&self, id: &str) -> Result<Truth, VipuError> {
        self.truth_of(id, self.account().as_deref()).await
    }

    /// What the controller has of `id`, which was asked for under `account`.
    ///
    /// Flow: a status answers at once. Where the status is refused, the list of partitions decides, since
    /// the code for "there is none" is not published. A list may show no more than what its caller may see, and
    /// NotFound may hide what is another's: neither says anything to another account than that which asked for
    /// the partition.
    /// An error means that the truth is not known; a caller who is denied anything learns nothing.
    pub async fn truth_of(&self, id: &str, account: Option<&str>) -> Result<Truth, VipuError> {
        match self.status(id).await {
            Ok(state) if state.ready_state == ReadyState::Removed => return Ok(Truth::Absent),
            Ok(state) => return Ok(Truth::Present(state)),
            Err(
                error @ (VipuError::Unreachable(_)
                | VipuError::Access(_)
                | VipuError::Denied { .. }),
            ) => return Err(error),
            Err(_) => {}
        }
        match self.listed_state(id).await? {
            Some(state) if state.ready_state != ReadyState::Removed => Ok(Truth::Present(state)),
            None if self.account().as_deref() != account => Err(VipuError::OtherAccount),
            Some(_) | None => Ok(Truth::Absent),
        }
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
        let span = tracing::trace_span!("vipu", method, controller = self.name());
        self.within(self.inner.deadlines.change, Box::pin(call))
            .instrument(span)
            .await
            .map_err(|status| VipuError::from_status(method, status))
    }

    /// Sends one call that only reads, again after a short pause where the controller cannot be
    /// reached; all of it within the deadline of reads. An attempt that failed slowly, since nobody
    /// answers at that address at all, is not made again: its caller has waited long enough.
    ///
    /// `take` turns the reply into what is kept of it.
    async fn read<T, R, C>(
        &self,
        method: &'static str,
        call: impl Fn(Line) -> C,
        take: impl FnOnce(T) -> R,
    ) -> Result<R, VipuError>
    where
        C: Future<Output = Result<Response<T>, Status>>,
    {
        let line = self.inner.lines.now()?;
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_times(2);
        let began = Instant::now();
        let calls = async {
            // The semaphore is never closed.
            let _permit = self.inner.reads.acquire().await;
            let calls = (|| call(line.clone())).retry(pauses).when(|status| {
                status.code() == Code::Unavailable && began.elapsed() < RETRIES_WITHIN
            });
            calls.await.map(|reply| reply.map(take))
        };
        let span = tracing::trace_span!("vipu", method, controller = self.name());
        self.within(self.inner.deadlines.read, Box::pin(calls))
            .instrument(span)
            .await
            .map_err(|status| VipuError::from_status(method, status))
    }

    /// Waits for a call until its deadline. A connection that let a deadline pass may be dead
    /// without knowing it (its peer lost power), so that the next call gets a new one. The call is
    /// boxed, since the state of a gRPC call takes kilobytes, which every caller would carry along.
    async fn within<T>(
        &self,
        deadline: Duration,
        call: Pin<Box<impl Future<Output = Result<Response<T>, Status>>>>,
    ) -> Result<T, Status> {
        if let Ok(result) = tokio::time::timeout(deadline, call).await {
            return result.map(Response::into_inner);
        }
        self.inner.lines.forget();
        let text = format!("no answer within {} s", deadline.as_secs_f32());
        Err(Status::deadline_exceeded(text))
    }

    /// Tells the server how long somebody waits for its answer: a little longer than this client
    /// does, so that it is the client's own deadline that ends the call here.
    fn with_deadline<T>(&self, mut request: Request<T>) -> Request<T> {
        request.set_timeout(self.inner.deadlines.change + Duration::from_secs(1));
        request
    }
}

/// Makes sure that an answer is about the partition that was asked for. One without an id says
/// nothing against it.
fn is_about(method: &'static str, asked: &str, answered: &str) -> Result<(), VipuError> {
    if answered.is_empty() || answered == asked {
        return Ok(());
    }
    Err(VipuError::OtherPartition {
        method,
        asked: asked.to_owned(),
        answered: model::named(answered),
    })
}

fn incomplete(method: &'static str, missing: &'static str) -> VipuError {
    VipuError::Incomplete { method, missing }
}
