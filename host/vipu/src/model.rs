//! Pure: the answers of a V-IPU controller in the operator's own types, without types of protobuf.

pub mod blocks;
mod inventory;
mod lists;

use ipu_api::ipupartition::AutoResets;
use ipu_api::uid::Uid;
use ipu_text::sanitize;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::proto;
pub use inventory::Inventory;
pub(super) use lists::{listed, total_ipus, truncate};

/// Longest name, id or version of a controller that is kept, in bytes. A real id has about forty.
const TEXT_MAX: usize = 256;

/// Longest error of a partition that is kept, in bytes.
const ERROR_MAX: usize = 512;

/// Errors of one partition that are kept.
const ERRORS_MAX: usize = 8;

/// Maximum number of partitions in the inventory of one controller. Further partitions only count
/// with their IPUs.
pub const PARTITIONS_MAX: usize = 16_384;

/// Maximum memory of one of them, in bytes: the value, its id with the overhead of the allocator,
/// and its entry among the ids of an inventory.
pub(super) const LISTED_MAX: usize =
    size_of::<ListedPartition>() + TEXT_MAX + 16 + 2 * size_of::<Uid>();

/// Maximum number of devices kept for one GCD: one more than a V-POD has IPUs, so that a size
/// mismatch remains visible.
const DEVICES_MAX: usize = 257;

/// Properties of a new partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// Its id. An id is never reused.
    pub id: String,
    /// IPUs: a power of two.
    pub ipus: u32,
    /// GCDs: the number of processes that share it.
    pub gcds: u32,
    /// Model replicas over all GCDs. `None`: one for each GCD.
    pub replicas: Option<u32>,
    /// Whether the partition may be reconfigured.
    pub reconfigurable: bool,
    /// Whether the controller may move it to other IPUs.
    pub relocatable: bool,
}

/// A partition in the list of its controller, of the operator or of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPartition {
    /// Its id.
    pub id: String,
    /// IPUs it holds.
    pub ipus: u32,
    /// GCDs it is divided into.
    pub gcds: u32,
    /// Place of its first IPU in the cluster, if its IPUs are listed as one block.
    pub first_ipu: Option<u32>,
    /// Whether it can be used.
    pub ready_state: ReadyState,
}

/// State of one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionState {
    /// Whether it can be used.
    pub ready_state: ReadyState,
    /// The current operation.
    pub operation_state: OperationState,
    /// Errors that the controller reports.
    pub errors: Vec<String>,
    /// Resets that the controller made by itself. `None`: it neither made nor allows any.
    pub auto_resets: Option<AutoResets>,
}

/// Whether a partition can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadyState {
    /// Not reported, or unknown to this client.
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

/// The current operation on a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationState {
    /// Not reported, or unknown to this client.
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

/// The result of a lookup of one id.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// The controller has no such partition.
    Absent,
    /// The controller has it, in this state.
    Present(PartitionState),
}

/// Configuration with which the process of one GCD attaches to its IPUs.
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
    /// The identifier printed on the chip. Empty if the controller does not report it.
    pub chip_id: String,
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
            id: named(&partition.id),
            ipus: u32::try_from(spec.ipus.len()).unwrap_or(u32::MAX),
            gcds: spec.num_gcds,
            first_ipu: blocks::first_ipu(&spec.ipus),
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
            errors: errors(&status.errors),
        }
    }
}

impl From<&ListedPartition> for PartitionState {
    /// The part of the state that the list contains.
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
        GcdConfig {
            devices: {
                let devices = gcd.devices.into_iter().take(DEVICES_MAX);
                devices.map(Device::from).collect()
            },
        }
    }
}

impl From<proto::IpuofDevice> for Device {
    fn from(device: proto::IpuofDevice) -> Self {
        Device {
            ip: named(&device.ip),
            server_port: device.server_port,
            rdma_port: device.rdma_port,
            device_id: device.device_id,
            routing_id: device.routing_id,
            chip_id: named(&device.chip_id),
        }
    }
}

/// Compares the devices of GCD 0 with the request of a partition with `ipus` and `gcds`. Returns
/// `None` if the controller reports no device.
pub fn size_mismatch(config: &GcdConfig, ipus: u32, gcds: u32) -> Option<String> {
    let made = u32::try_from(config.devices.len()).unwrap_or(u32::MAX);
    let asked = ipus.checked_div(gcds)?;
    (made > 0 && asked * gcds == ipus && made != asked)
        .then(|| format!("made with {made} IPUs for GCD 0, {asked} were requested"))
}

/// A name, id or version of a controller, sanitized. A text that changes was no id of the operator,
/// and is none afterwards.
pub(super) fn named(text: &str) -> String {
    sanitize(text, TEXT_MAX)
}

fn errors(errors: &[String]) -> Vec<String> {
    let kept = errors.iter().take(ERRORS_MAX);
    kept.map(|error| sanitize(error, ERROR_MAX)).collect()
}

/// A time of a reply, if it is valid: the API server refuses years before 0.
fn time(stamp: prost_types::Timestamp) -> Option<Time> {
    let time = Timestamp::new(stamp.seconds, stamp.nanos).ok()?;
    (time >= Timestamp::UNIX_EPOCH).then_some(Time(time))
}

#[cfg(test)]
mod tests;
