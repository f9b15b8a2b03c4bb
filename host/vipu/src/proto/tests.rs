//! Compares the compiled `vipu.proto` with the wire of real V-IPU controllers, field by field.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

use super::*;

/// `message.field = number type`, as real controllers have them (1.18).
const MESSAGES: &str = "
PartitionIpu.ipulink_domain_topology_id = 1 uint32
PartitionIpu.ipulink_domain_routing_id = 2 uint32
PartitionIpu.topology_id = 3 uint32
PartitionIpu.routing_id = 4 uint32
PartitionSpec.cluster_id = 1 string
PartitionSpec.ipus = 2 repeated PartitionIpu
PartitionSpec.ipulink_routing_type = 3 IpuLinkRoutingType
PartitionSpec.sync_type = 4 SyncType
PartitionSpec.num_gcds = 5 uint32
PartitionSpec.num_ipulink_segments = 6 uint32
PartitionSpec.reconfigurable = 7 bool
PartitionSpec.gw_routing_type = 8 GatewayRoutingType
PartitionSpec.num_replicas = 9 uint32
PartitionSpec.allocation_id = 10 string
Partition.id = 1 string
Partition.spec = 2 PartitionSpec
Partition.ready_state = 3 PartitionReadyState
Partition.ipuof_server_version = 4 string
ListPartitionsRequest.allocation_id = 1 string
ListPartitionsReply.partitions = 1 repeated Partition
PartitionRequirements.id = 1 string
PartitionRequirements.size = 2 uint32
PartitionRequirements.cluster_id = 3 string
PartitionRequirements.ipulink_routing_type = 4 IpuLinkRoutingType
PartitionRequirements.num_ipulink_segments = 5 uint32
PartitionRequirements.gw_routing_type = 6 GatewayRoutingType
PartitionRequirements.sync_type = 7 SyncType
PartitionRequirements.num_gcds = 8 uint32
PartitionRequirements.reconfigurable = 9 bool
PartitionRequirements.num_replicas = 10 uint32
PartitionRequirements.allocation_id = 11 string
PartitionRequirements.ipus = 12 repeated PartitionIpu
CreatePartitionRequest.requirements = 2 PartitionRequirements
CreatePartitionRequest.disable_auto_reset = 3 bool
CreatePartitionRequest.relocatable = 5 bool
CreatePartitionReply.partition_id = 1 string
ResetPartitionRequest.partition_id = 1 string
ResetPartitionRequest.relocatable = 2 bool
RemovePartitionRequest.partition_id = 1 string
RemovePartitionRequest.force = 2 bool
GetPartitionStatusRequest.partition_id = 1 string
GetPartitionStatusReply.status = 1 PartitionStatus
PartitionStatus.partition_id = 1 string
PartitionStatus.ready_state = 2 PartitionReadyState
PartitionStatus.operation_state = 3 PartitionOperationState
PartitionStatus.errors = 4 repeated string
PartitionStatus.max_auto_reset_retries = 5 uint32
PartitionStatus.auto_reset_retry_count = 6 uint32
PartitionStatus.last_auto_reset_time = 7 google.protobuf.Timestamp
GetPartitionIpuofConfigRequest.partition_id = 1 string
GetPartitionIpuofConfigRequest.gcd_id = 2 GetPartitionIpuofConfigRequest.GcdID
GetPartitionIpuofConfigRequest.GcdID.id = 1 uint32
GetPartitionIpuofConfigReply.ipuof_config = 1 PartitionConfig
PartitionConfig.ipulink_routing_type = 2 IpuLinkRoutingType
PartitionConfig.sync_type = 3 SyncType
PartitionConfig.reconfigurable = 5 bool
PartitionConfig.gw_routing_type = 6 GatewayRoutingType
PartitionConfig.num_ipulink_segments = 7 uint32
PartitionConfig.gcd_configs = 8 repeated PartitionConfig.Gcd
PartitionConfig.ipuof_server_version = 9 string
PartitionConfig.Gcd.devices = 2 repeated IpuofDevice
PartitionConfig.Gcd.attributes = 3 map<string, string>
IpuofDevice.ip = 1 string
IpuofDevice.server_port = 2 uint32
IpuofDevice.rdma_port = 3 uint32
IpuofDevice.device_id = 4 uint32
IpuofDevice.ipulink_segment_id = 5 uint32
IpuofDevice.routing_id = 6 uint32
IpuofDevice.ipu_arch_id = 7 uint32
IpuofDevice.ipu_id = 8 uint32
IpuofDevice.chip_id = 9 string
IpuofDevice.gwsw_version = 10 string
IpuofDevice.ipum_sw_version = 11 string
AllocationSpec.cluster_id = 1 string
AllocationSpec.agent_ids = 2 repeated string
Allocation.id = 1 string
Allocation.spec = 2 AllocationSpec
ListIPUAttributesRequest.agents = 1 repeated string
ListIPUAttributesReply.entries = 1 repeated ListIPUAttributesReply.Entry
ListIPUAttributesReply.Entry.agent = 1 string
ListIPUAttributesReply.Entry.ipu_attributes = 2 map<uint32, ListIPUAttributesReply.Attributes>
ListIPUAttributesReply.Attributes.attributes = 1 map<string, string>
VersionReply.version = 1 string
";

/// `enum.value = number`.
const ENUMS: &str = "
IpuLinkRoutingType.IRT_UNDEFINED = 0
IpuLinkRoutingType.IRT_DNC = 1
IpuLinkRoutingType.IRT_SWNC = 2
IpuLinkRoutingType.IRT_BTNC = 3
IpuLinkRoutingType.IRT_RINGSWNC = 4
GatewayRoutingType.GRT_UNDEFINED = 0
GatewayRoutingType.GRT_RING = 2
GatewayRoutingType.GRT_SWRING = 3
SyncType.ST_UNDEFINED = 0
SyncType.ST_GS2_DEFAULT = 1
SyncType.ST_GS2_INDEPENDENT_RAILS = 2
SyncType.ST_POD_NATIVE_DEFAULT = 3
SyncType.ST_POD_NATIVE_REPLICATED_PIPELINE = 4
PartitionReadyState.PS_UNDEFINED = 0
PartitionReadyState.PS_PENDING = 1
PartitionReadyState.PS_ACTIVE = 2
PartitionReadyState.PS_REMOVED = 3
PartitionReadyState.PS_ERROR = 4
PartitionOperationState.POS_UNDEFINED = 0
PartitionOperationState.POS_IDLE = 1
PartitionOperationState.POS_CREATING = 2
PartitionOperationState.POS_REMOVING = 3
PartitionOperationState.POS_RESETTING = 4
PartitionOperationState.POS_FAILED = 5
";

/// `service.method(request) reply`.
const METHODS: &str = "
UserService.ListPartitions(ListPartitionsRequest) ListPartitionsReply
UserService.ListIPUAttributes(ListIPUAttributesRequest) ListIPUAttributesReply
UserService.CreatePartition(CreatePartitionRequest) CreatePartitionReply
UserService.RemovePartition(RemovePartitionRequest) RemovePartitionReply
UserService.ResetPartition(ResetPartitionRequest) ResetPartitionReply
UserService.GetPartitionIpuofConfig(GetPartitionIpuofConfigRequest) GetPartitionIpuofConfigReply
UserService.GetPartitionStatus(GetPartitionStatusRequest) GetPartitionStatusReply
VersionService.GetVersion(VersionRequest) VersionReply
";

#[test]
fn every_field_has_the_number_and_type_of_the_wire() {
    let mut found = Vec::new();
    for message in &file().message_type {
        fields(message, "", &mut found);
    }
    assert_eq!(sorted(found), lines(MESSAGES));
}

#[test]
fn every_enum_value_has_the_number_of_the_wire() {
    let found = file()
        .enum_type
        .iter()
        .flat_map(|kind| {
            kind.value
                .iter()
                .map(|value| format!("{}.{} = {}", kind.name(), value.name(), value.number()))
        })
        .collect();
    assert_eq!(sorted(found), lines(ENUMS));
}

#[test]
fn every_method_is_unary_and_named_as_on_the_wire() {
    let file = file();
    let mut found = Vec::new();
    for service in &file.service {
        for method in &service.method {
            assert!(!method.client_streaming() && !method.server_streaming());
            found.push(format!(
                "{}.{}({}) {}",
                service.name(),
                method.name(),
                short(method.input_type()),
                short(method.output_type())
            ));
        }
    }
    assert_eq!(file.package(), "virmgrpc");
    assert_eq!(file.syntax(), "proto3");
    assert_eq!(sorted(found), lines(METHODS));
}

/// The bytes are written out by hand: tag = number × 8 + wire type.
#[test]
fn a_create_request_has_the_bytes_of_the_wire() {
    let request = CreatePartitionRequest {
        requirements: Some(PartitionRequirements {
            id: "p1".to_owned(),
            size: 16,
            num_gcds: 2,
            reconfigurable: true,
            num_replicas: 4,
            ..PartitionRequirements::default()
        }),
        disable_auto_reset: true,
        relocatable: true,
    };
    let requirements = [0x0a, 2, b'p', b'1', 0x10, 16, 0x40, 2, 0x48, 1, 0x50, 4];
    let mut wire = vec![0x12, 12];
    wire.extend(requirements);
    wire.extend([0x18, 1, 0x28, 1]);
    assert_eq!(request.encode_to_vec(), wire);
}

#[test]
fn a_status_reply_is_read_from_the_bytes_of_the_wire() {
    let wire = [
        0x0a, 19, 0x0a, 2, b'p', b'1', 0x10, 4, 0x18, 5, 0x22, 1, b'x', 0x28, 3, 0x30, 2, 0x3a, 2,
        0x08, 7,
    ];
    let reply = GetPartitionStatusReply::decode(wire.as_slice()).unwrap();
    let status = reply.status.unwrap();
    assert_eq!(status.partition_id, "p1");
    assert_eq!(status.ready_state(), PartitionReadyState::PsError);
    assert_eq!(status.operation_state(), PartitionOperationState::PosFailed);
    assert_eq!(status.errors, ["x"]);
    assert_eq!(status.max_auto_reset_retries, 3);
    assert_eq!(status.auto_reset_retry_count, 2);
    assert_eq!(status.last_auto_reset_time.unwrap().seconds, 7);
}

fn file() -> FileDescriptorProto {
    let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/vipu.descriptors"));
    FileDescriptorSet::decode(bytes.as_slice())
        .unwrap()
        .file
        .into_iter()
        .find(|file| file.name() == "vipu.proto")
        .unwrap()
}

fn fields(message: &DescriptorProto, outer: &str, found: &mut Vec<String>) {
    let name = format!("{outer}{}", message.name());
    let maps: BTreeMap<String, String> = message
        .nested_type
        .iter()
        .filter(|nested| nested.options.as_ref().is_some_and(|o| o.map_entry()))
        .map(|entry| {
            let text = format!("map<{}, {}>", kind(&entry.field[0]), kind(&entry.field[1]));
            (format!("{name}.{}", entry.name()), text)
        })
        .collect();
    for field in &message.field {
        let kind = kind(field);
        let text = match maps.get(&kind) {
            Some(map) => map.clone(),
            None if field.label() == Label::Repeated => format!("repeated {kind}"),
            None => kind,
        };
        found.push(format!(
            "{name}.{} = {} {text}",
            field.name(),
            field.number()
        ));
    }
    for nested in &message.nested_type {
        if !maps.contains_key(&format!("{name}.{}", nested.name())) {
            fields(nested, &format!("{name}."), found);
        }
    }
}

fn kind(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => short(field.type_name()),
        Type::Uint32 => "uint32".to_owned(),
        Type::String => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        other => format!("{other:?}"),
    }
}

fn short(name: &str) -> String {
    let name = name.trim_start_matches('.');
    name.strip_prefix("virmgrpc.").unwrap_or(name).to_owned()
}

fn lines(table: &str) -> Vec<String> {
    sorted(
        table
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}
