//! Pure: the gRPC messages about the simulated pod. Addresses and versions are plausible and made
//! up.

use proto::list_ipu_attributes_reply::{Attributes, Entry};
use vipu_client::proto;

use crate::pod::{AUTO_RESETS_MAX, Partition, PartitionSpec, Pod, Stage};

/// The version that the simulated server reports: the newest that real servers have reported.
pub(super) const SERVER_VERSION: &str = "1.18.0";

/// IPUs of one IPU-Machine. Each IPU-Machine has its own agent.
pub(super) const IPUS_PER_MACHINE: u32 = 4;

/// IPUs of one IPU-Link domain: a POD64. Larger pods connect several by gateway links.
const IPUS_PER_DOMAIN: u32 = 64;

/// Reads the properties of a partition from a create request.
pub(super) fn spec(request: proto::CreatePartitionRequest) -> PartitionSpec {
    let requirements = request.requirements.unwrap_or_default();
    PartitionSpec {
        relocatable: request.relocatable,
        id: requirements.id,
        ipus: requirements.size,
        gcds: requirements.num_gcds,
        replicas: requirements.num_replicas,
        reconfigurable: requirements.reconfigurable,
        allocation: requirements.allocation_id,
        cluster: requirements.cluster_id,
    }
}

/// A partition as ListPartitions shows it.
pub(super) fn listed(pod: &str, partition: &Partition) -> proto::Partition {
    let ipus =
        (0..partition.block.size).map(|index| listed_ipu(partition.block.first + index, index));
    proto::Partition {
        id: partition.id.clone(),
        spec: Some(proto::PartitionSpec {
            cluster_id: partition.cluster.clone(),
            ipus: ipus.collect(),
            ipulink_routing_type: proto::IpuLinkRoutingType::IrtDnc.into(),
            sync_type: proto::SyncType::StPodNativeDefault.into(),
            num_gcds: partition.gcds,
            num_ipulink_segments: 1,
            reconfigurable: partition.reconfigurable,
            gw_routing_type: proto::GatewayRoutingType::GrtUndefined.into(),
            num_replicas: partition.replicas,
            allocation_id: pod.to_owned(),
        }),
        ready_state: ready_state(partition.stage).into(),
        ipuof_server_version: SERVER_VERSION.to_owned(),
    }
}

/// One IPU of a partition: its place in the cluster and in its IPU-Link domain, and its number in
/// the partition.
fn listed_ipu(place: u32, index: u32) -> proto::PartitionIpu {
    proto::PartitionIpu {
        ipulink_domain_topology_id: place % IPUS_PER_DOMAIN,
        ipulink_domain_routing_id: index % IPUS_PER_DOMAIN,
        topology_id: place,
        routing_id: index,
    }
}

/// A partition as GetPartitionStatus shows it.
pub(super) fn status(partition: &Partition) -> proto::PartitionStatus {
    proto::PartitionStatus {
        partition_id: partition.id.clone(),
        ready_state: ready_state(partition.stage).into(),
        operation_state: operation_state(partition.stage).into(),
        errors: partition.errors.clone(),
        max_auto_reset_retries: AUTO_RESETS_MAX,
        auto_reset_retry_count: partition.auto_resets,
        last_auto_reset_time: partition
            .last_auto_reset
            .map(|time| prost_types::Timestamp {
                seconds: time.as_second(),
                nanos: time.subsec_nanosecond(),
            }),
    }
}

/// Returns the way in which processes attach to a partition: to one GCD, or to all. Empty if the
/// GCD does not exist.
pub(super) fn ipuof_config(
    partition: &Partition,
    gcd: Option<u32>,
) -> Option<proto::PartitionConfig> {
    let gcds = match gcd {
        Some(gcd) if gcd >= partition.gcds => return None,
        Some(gcd) => gcd..gcd + 1,
        None => 0..partition.gcds,
    };
    let per_gcd = partition.block.size / partition.gcds;
    let gcd_configs = gcds
        .map(|gcd| proto::partition_config::Gcd {
            devices: (gcd * per_gcd..(gcd + 1) * per_gcd)
                .map(|index| device(partition.block.first + index, index))
                .collect(),
            attributes: [("GCD".to_owned(), gcd.to_string())].into(),
        })
        .collect();
    Some(proto::PartitionConfig {
        ipulink_routing_type: proto::IpuLinkRoutingType::IrtDnc.into(),
        sync_type: proto::SyncType::StPodNativeDefault.into(),
        reconfigurable: partition.reconfigurable,
        gw_routing_type: proto::GatewayRoutingType::GrtUndefined.into(),
        num_ipulink_segments: 1,
        gcd_configs,
        ipuof_server_version: SERVER_VERSION.to_owned(),
    })
}

/// Every IPU of the pod, by agent. If agents are named, only theirs.
pub(super) fn attributes(pod: &Pod, agents: &[String]) -> proto::ListIpuAttributesReply {
    let entries = (0..pod.ipus.div_ceil(IPUS_PER_MACHINE))
        .map(|agent| Entry {
            agent: format!("{}-ag{:02}", pod.name, agent + 1),
            ipu_attributes: (0..IPUS_PER_MACHINE)
                .filter(|index| agent * IPUS_PER_MACHINE + index < pod.ipus)
                .map(|index| (index, ipu(agent * IPUS_PER_MACHINE + index)))
                .collect(),
        })
        .filter(|entry| agents.is_empty() || agents.contains(&entry.agent))
        .collect();
    proto::ListIpuAttributesReply { entries }
}

fn ready_state(stage: Stage) -> proto::PartitionReadyState {
    match stage {
        Stage::Creating(_) | Stage::Resetting(_) | Stage::Removing(_) => {
            proto::PartitionReadyState::PsPending
        }
        Stage::Active => proto::PartitionReadyState::PsActive,
        Stage::Failed => proto::PartitionReadyState::PsError,
    }
}

fn operation_state(stage: Stage) -> proto::PartitionOperationState {
    match stage {
        Stage::Creating(_) => proto::PartitionOperationState::PosCreating,
        Stage::Resetting(_) => proto::PartitionOperationState::PosResetting,
        Stage::Removing(_) => proto::PartitionOperationState::PosRemoving,
        Stage::Active => proto::PartitionOperationState::PosIdle,
        Stage::Failed => proto::PartitionOperationState::PosFailed,
    }
}

/// Address of an IPU-Machine, by its number from 0.
pub(super) fn address(machine: u32) -> String {
    format!("10.1.{}.{}", machine / 250, machine % 250 + 1)
}

fn device(ipu: u32, routing_id: u32) -> proto::IpuofDevice {
    let (machine, device_id) = (ipu / IPUS_PER_MACHINE, ipu % IPUS_PER_MACHINE);
    proto::IpuofDevice {
        ip: address(machine),
        server_port: 10_000,
        rdma_port: 10_001 + device_id,
        device_id,
        ipulink_segment_id: 0,
        routing_id,
        ipu_arch_id: 21,
        ipu_id: ipu,
        chip_id: chip(ipu),
        gwsw_version: "2.6.0".to_owned(),
        ipum_sw_version: "2.6.0".to_owned(),
    }
}

fn ipu(number: u32) -> Attributes {
    let attributes = [
        ("board type", "M2000"),
        ("ipu architecture", "ipu21"),
        ("chip id", &chip(number)),
    ];
    Attributes {
        attributes: attributes
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    }
}

fn chip(ipu: u32) -> String {
    format!("sim-{ipu:08x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;

    use super::*;
    use crate::pod::Timings;

    fn formed(spec: &PartitionSpec) -> Partition {
        let mut pod = Pod::new("pod1", 64, Timings::default());
        pod.take(spec, Timestamp::UNIX_EPOCH).unwrap();
        pod.partition(&spec.id, Timestamp::UNIX_EPOCH)
            .unwrap()
            .clone()
    }

    #[test]
    fn gcds_share_a_partitions_ipus_and_no_two_have_the_same() {
        let partition = formed(&PartitionSpec {
            id: "p".to_owned(),
            ipus: 16,
            gcds: 4,
            ..PartitionSpec::default()
        });
        let mut seen = BTreeSet::new();
        for gcd in 0..4 {
            let config = ipuof_config(&partition, Some(gcd)).unwrap();
            assert_eq!(config.gcd_configs.len(), 1);
            assert_eq!(config.gcd_configs[0].devices.len(), 4);
            seen.extend(config.gcd_configs[0].devices.iter().map(|d| d.ipu_id));
        }
        assert_eq!(seen.len(), 16);
        assert_eq!(ipuof_config(&partition, Some(4)), None);
        assert_eq!(ipuof_config(&partition, None).unwrap().gcd_configs.len(), 4);
    }

    #[test]
    fn each_ipu_of_a_partition_is_listed_with_its_place() {
        let mut pod = Pod::new("pod1", 128, Timings::default());
        for (id, ipus) in [("p", 64), ("q", 4)] {
            let spec = PartitionSpec {
                id: id.to_owned(),
                ipus,
                gcds: 1,
                ..PartitionSpec::default()
            };
            pod.take(&spec, Timestamp::UNIX_EPOCH).unwrap();
        }
        let partition = pod.partition("q", Timestamp::UNIX_EPOCH).unwrap();
        let ipus = listed("pod1", partition).spec.unwrap().ipus;
        let places = ipus
            .iter()
            .map(|ipu| (ipu.topology_id, ipu.ipulink_domain_topology_id));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [(64, 0), (65, 1), (66, 2), (67, 3)]
        );
    }

    #[test]
    fn every_ipu_has_an_agent_also_where_a_machine_is_not_full() {
        for ipus in [0, 1, 4, 6, 16, 64] {
            let reply = attributes(&Pod::new("pod1", ipus, Timings::default()), &[]);
            let count: usize = reply.entries.iter().map(|e| e.ipu_attributes.len()).sum();
            assert_eq!(count, usize::try_from(ipus).unwrap());
        }
        let pod = Pod::new("pod1", 16, Timings::default());
        let one = attributes(&pod, &["pod1-ag02".to_owned()]);
        assert_eq!(one.entries.len(), 1);
    }
}
