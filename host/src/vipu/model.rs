//! Pure: what a V-IPU controller says, in the operator's own types; no protobuf type goes further up.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::proto;
use crate::api::ipupartition::AutoResets;

/// What a new partition must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// Its id; never one that was used before.
    pub id: String,
    /// IPUs: a power of two.
    pub ipus: u32,
    /// GCDs: how many processes share it.
    pub gcds: u32,
    /// Model replicas over all GCDs. Missing: as many as GCDs.
    pub replicas: Option<u32>,
    /// Whether the partition may be reconfigured.
    pub reconfigurable: bool,
    /// Whether the controller may move it to other IPUs.
    pub relocatable: bool,
}

/// A partition as its controller lists it, whoever made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPartition {
    /// Its id.
    pub id: String,
    /// IPUs it holds.
    pub ipus: u32,
    /// GCDs it is divided into.
    pub gcds: u32,
    /// Whether it can be used.
    pub ready_state: ReadyState,
}

/// Where one partition stands.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionState {
    /// Whether it can be used.
    pub ready_state: ReadyState,
    /// What is being done to it.
    pub operation_state: OperationState,
    /// What the controller says is wrong with it.
    pub errors: Vec<String>,
    /// Resets that the controller made by itself; missing where it neither made nor allows any.
    pub auto_resets: Option<AutoResets>,
}

/// Whether a partition can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyState {
    /// Not said, or a state that this client does not know.
    Undefined,
    /// Not formed yet.
    Pending,
    /// It can be used.
    Active,
    /// It is gone.
    Removed,
    /// It is broken.
    Error,
}

/// What is being done to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationState {
    /// Not said, or a state that this client does not know.
    Undefined,
    /// Nothing.
    Idle,
    /// It is being formed.
    Creating,
    /// It is being removed.
    Removing,
    /// It is being reset.
    Resetting,
    /// The last operation failed.
    Failed,
}

/// What a controller has of one id.
#[derive(Clone, Debug, PartialEq)]
pub enum Truth {
    /// Nothing.
    Absent,
    /// A partition in this state.
    Present(PartitionState),
}

/// How many IPUs a controller has, and how many are in partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// IPUs that the controller knows of.
    pub total: u32,
    /// IPUs in partitions, whoever made them.
    pub used: u32,
}

impl Inventory {
    /// The inventory that a controller's total and its list of partitions give.
    pub fn new(total: u32, partitions: &[ListedPartition]) -> Self {
        let used = partitions
            .iter()
            .filter(|partition| partition.ready_state != ReadyState::Removed)
            .fold(0, |sum: u32, partition| sum.saturating_add(partition.ipus));
        Inventory { total, used }
    }

    /// IPUs in no partition.
    pub fn free(&self) -> u32 {
        self.total.saturating_sub(self.used)
    }

    /// The largest partition that may fit now: the free IPUs, down to a power of two. An estimate
    /// and an upper bound, since the controller does not tell which IPUs can form a partition.
    pub fn largest_free(&self) -> u32 {
        self.free()
            .checked_ilog2()
            .map_or(0, |exponent| 1 << exponent)
    }
}

/// How the process of one GCD attaches to its IPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcdConfig {
    /// Its IPUs, in order.
    pub devices: Vec<Device>,
}

/// One IPU as a process attaches to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Address of the IPU-Machine.
    pub ip: String,
    /// Port of its IPUoF server.
    pub server_port: u32,
    /// Port for RDMA.
    pub rdma_port: u32,
    /// Number of the IPU on its machine.
    pub device_id: u32,
    /// Number of the IPU in the partition.
    pub routing_id: u32,
}

impl From<&CreateRequest> for proto::CreatePartitionRequest {
    /// Routing and sync stay unset: the server chooses.
    fn from(request: &CreateRequest) -> Self {
        proto::CreatePartitionRequest {
            requirements: Some(proto::PartitionRequirements {
                id: request.id.clone(),
                size: request.ipus,
                num_gcds: request.gcds,
                num_replicas: request.replicas.unwrap_or_default(),
                reconfigurable: request.reconfigurable,
                ..proto::PartitionRequirements::default()
            }),
            disable_auto_reset: false,
            relocatable: request.relocatable,
        }
    }
}

impl From<proto::Partition> for ListedPartition {
    fn from(partition: proto::Partition) -> Self {
        let ready_state = partition.ready_state().into();
        let spec = partition.spec.unwrap_or_default();
        ListedPartition {
            id: partition.id,
            ipus: u32::try_from(spec.ipus.len()).unwrap_or(u32::MAX),
            gcds: spec.num_gcds,
            ready_state,
        }
    }
}

impl From<proto::PartitionStatus> for PartitionState {
    fn from(status: proto::PartitionStatus) -> Self {
        let resets = AutoResets {
            count: status.auto_reset_retry_count,
            max: status.max_auto_reset_retries,
            last_time: status.last_auto_reset_time.and_then(time),
        };
        PartitionState {
            ready_state: status.ready_state().into(),
            operation_state: status.operation_state().into(),
            auto_resets: (resets != AutoResets::default()).then_some(resets),
            errors: status.errors,
        }
    }
}

impl From<&ListedPartition> for PartitionState {
    /// What the list alone tells.
    fn from(partition: &ListedPartition) -> Self {
        PartitionState {
            ready_state: partition.ready_state,
            operation_state: OperationState::Undefined,
            errors: Vec::new(),
            auto_resets: None,
        }
    }
}

impl From<proto::PartitionReadyState> for ReadyState {
    fn from(state: proto::PartitionReadyState) -> Self {
        match state {
            proto::PartitionReadyState::PsUndefined => ReadyState::Undefined,
            proto::PartitionReadyState::PsPending => ReadyState::Pending,
            proto::PartitionReadyState::PsActive => ReadyState::Active,
            proto::PartitionReadyState::PsRemoved => ReadyState::Removed,
            proto::PartitionReadyState::PsError => ReadyState::Error,
        }
    }
}

impl From<proto::PartitionOperationState> for OperationState {
    fn from(state: proto::PartitionOperationState) -> Self {
        match state {
            proto::PartitionOperationState::PosUndefined => OperationState::Undefined,
            proto::PartitionOperationState::PosIdle => OperationState::Idle,
            proto::PartitionOperationState::PosCreating => OperationState::Creating,
            proto::PartitionOperationState::PosRemoving => OperationState::Removing,
            proto::PartitionOperationState::PosResetting => OperationState::Resetting,
            proto::PartitionOperationState::PosFailed => OperationState::Failed,
        }
    }
}

impl From<proto::partition_config::Gcd> for GcdConfig {
    fn from(gcd: proto::partition_config::Gcd) -> Self {
        let devices = gcd.devices.into_iter().map(|device| Device {
            ip: device.ip,
            server_port: device.server_port,
            rdma_port: device.rdma_port,
            device_id: device.device_id,
            routing_id: device.routing_id,
        });
        GcdConfig {
            devices: devices.collect(),
        }
    }
}

/// IPUs over all entries of a reply to ListIPUAttributes.
pub(super) fn total_ipus(reply: &proto::ListIpuAttributesReply) -> u32 {
    reply.entries.iter().fold(0, |sum, entry| {
        let here = u32::try_from(entry.ipu_attributes.len()).unwrap_or(u32::MAX);
        sum.saturating_add(here)
    })
}

/// A time of the wire, where it is one.
fn time(stamp: prost_types::Timestamp) -> Option<Time> {
    Timestamp::new(stamp.seconds, stamp.nanos).ok().map(Time)
}

#[cfg(test)]
mod tests;
