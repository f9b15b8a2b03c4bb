//! Tables for the conversions of replies, and for the counts.

use super::*;

fn listed(id: &str, ipus: u32, ready_state: ReadyState) -> ListedPartition {
    ListedPartition {
        id: id.to_owned(),
        ipus,
        gcds: 1,
        first_ipu: None,
        ready_state,
    }
}

#[test]
fn what_is_free_is_counted_and_the_largest_partition_is_a_power_of_two() {
    // (total, IPUs of the partitions, free, largest)
    let table: [(u32, &[u32], u32, u32); 8] = [
        (16, &[], 16, 16),
        (16, &[4], 12, 8),
        (16, &[8, 7], 1, 1),
        (16, &[16], 0, 0),
        // More used than there is: a machine was taken out of service.
        (16, &[16, 16], 0, 0),
        (0, &[], 0, 0),
        (u32::MAX, &[], u32::MAX, 1 << 31),
        (16, &[u32::MAX, u32::MAX], 0, 0),
    ];
    for (total, ipus, free, largest) in table {
        let partitions: Vec<_> = ipus
            .iter()
            .map(|&ipus| listed("p", ipus, ReadyState::Active))
            .collect();
        let inventory = Inventory::new(total, partitions);
        assert_eq!(inventory.free(), free, "{total} {ipus:?}");
        assert_eq!(inventory.largest_free(), largest, "{total} {ipus:?}");
    }
}

#[test]
fn a_removed_partition_uses_nothing_and_a_broken_one_does() {
    let partitions = [
        listed("gone", 4, ReadyState::Removed),
        listed("broken", 8, ReadyState::Error),
    ];
    assert_eq!(Inventory::new(16, partitions.to_vec()).used, 8);
}

#[test]
fn places_count_only_within_one_cluster() {
    let partition = |id: &str, cluster: &str, first: u32| proto::Partition {
        id: id.to_owned(),
        spec: Some(proto::PartitionSpec {
            cluster_id: cluster.to_owned(),
            ipus: vec![proto::PartitionIpu {
                topology_id: first,
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let places = |partitions: [proto::Partition; 2]| {
        let partitions = partitions.to_vec();
        let listed = super::listed(proto::ListPartitionsReply { partitions });
        listed.iter().map(|one| one.first_ipu).collect::<Vec<_>>()
    };
    let both = places([partition("p", "c1", 0), partition("q", "c1", 4)]);
    assert_eq!(both, [Some(0), Some(4)]);
    let both = places([partition("p", "c1", 0), partition("q", "c2", 4)]);
    assert_eq!(both, [None, None]);
}

#[test]
fn ipus_are_counted_over_all_agents() {
    let entry = |agent: &str, numbers: &[u32]| proto::list_ipu_attributes_reply::Entry {
        agent: agent.to_owned(),
        ipu_attributes: numbers
            .iter()
            .map(|&number| (number, Default::default()))
            .collect(),
    };
    let reply = proto::ListIpuAttributesReply {
        entries: vec![
            entry("ag1", &[0, 1, 2, 3]),
            entry("ag2", &[]),
            entry("ag3", &[0, 1]),
            // Reported twice, in part.
            entry("ag3", &[1, 2]),
            entry("", &[0]),
            entry("", &[0]),
        ],
    };
    assert_eq!(total_ipus(&reply), 9);
    assert_eq!(total_ipus(&proto::ListIpuAttributesReply::default()), 0);
}

#[test]
fn unset_fields_and_unknown_states_are_undefined_not_errors() {
    let status = proto::PartitionStatus {
        ready_state: 99,
        operation_state: -1,
        ..Default::default()
    };
    let state = PartitionState::from(status);
    assert_eq!(state.ready_state, ReadyState::Undefined);
    assert_eq!(state.operation_state, OperationState::Undefined);
    assert_eq!(state.auto_resets, None);
    let partition = ListedPartition::from(proto::Partition::default());
    assert_eq!(
        partition,
        listed("", 0, ReadyState::Undefined).without_gcds()
    );
}

#[test]
fn a_partition_that_is_listed_twice_counts_once_as_the_larger() {
    use proto::PartitionReadyState::{PsActive, PsRemoved};
    let partition = |id: &str, ipus: usize, state: proto::PartitionReadyState| proto::Partition {
        id: id.to_owned(),
        spec: Some(proto::PartitionSpec {
            ipus: vec![Default::default(); ipus],
            ..Default::default()
        }),
        ready_state: state.into(),
        ..Default::default()
    };
    let table = [
        ([("p", 4, PsActive), ("p", 8, PsActive)], vec![("p", 8)]),
        ([("p", 8, PsActive), ("p", 4, PsActive)], vec![("p", 8)]),
        ([("p", 8, PsRemoved), ("p", 4, PsActive)], vec![("p", 4)]),
        ([("p", 4, PsActive), ("p", 8, PsRemoved)], vec![("p", 4)]),
        (
            [("", 1, PsActive), ("q", 1, PsActive)],
            vec![("", 1), ("q", 1)],
        ),
        ([("p", 8, PsRemoved), ("q", 1, PsActive)], vec![("q", 1)]),
    ];
    for (twice, expected) in table {
        let partitions = twice.map(|(id, ipus, state)| partition(id, ipus, state));
        let reply = proto::ListPartitionsReply {
            partitions: partitions.to_vec(),
        };
        let inventory = Inventory::new(16, super::listed(reply));
        let kept = inventory.partitions.iter();
        let kept: Vec<_> = kept.map(|one| (one.id.as_str(), one.ipus)).collect();
        assert_eq!(kept, expected, "{twice:?}");
        let used: u32 = expected.iter().map(|(_, ipus)| ipus).sum();
        assert_eq!(inventory.used, used);
    }
}

#[test]
fn an_inventory_counts_all_and_keeps_what_memory_allows() {
    let many = vec![listed("p", 2, ReadyState::Active); PARTITIONS_MAX + 10];
    let inventory = Inventory::new(u32::MAX, many);
    assert_eq!(inventory.partitions.len(), PARTITIONS_MAX);
    assert_eq!(
        usize::try_from(inventory.used).unwrap(),
        2 * (PARTITIONS_MAX + 10)
    );
    let long = proto::Partition {
        id: "é".repeat(100_000),
        ..Default::default()
    };
    let cut = format!("{}…", "é".repeat(TEXT_MAX / 2 - 2));
    assert_eq!(ListedPartition::from(long).id, cut);
}

#[test]
fn only_a_described_partition_of_another_size_is_reported() {
    let config = |devices| GcdConfig {
        devices: vec![Device::from(proto::IpuofDevice::default()); devices],
    };
    assert_eq!(size_mismatch(&config(4), 8, 2), None);
    assert_eq!(
        size_mismatch(&config(2), 4, 1).unwrap(),
        "made with 2 IPUs for GCD 0, 4 were requested"
    );
    // Nothing was reported, or nothing can be expected.
    assert_eq!(size_mismatch(&config(0), 4, 1), None);
    assert_eq!(size_mismatch(&config(2), 4, 0), None);
    assert_eq!(size_mismatch(&config(1), 4, 3), None);
}

#[test]
fn a_time_beyond_all_calendars_is_left_out() {
    let status = |seconds| proto::PartitionStatus {
        auto_reset_retry_count: 1,
        last_auto_reset_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
        ..Default::default()
    };
    let last = |seconds| {
        PartitionState::from(status(seconds))
            .auto_resets
            .unwrap()
            .last_time
    };
    assert_eq!(last(0), Some(Time(Timestamp::UNIX_EPOCH)));
    assert_eq!(last(i64::MAX), None);
    // A year before 0 is a time here and none to the API server, which would refuse the whole
    // status.
    assert_eq!(last(Timestamp::MIN.as_second()), None);
    assert_eq!(last(-1), None);
}

#[test]
fn a_create_request_leaves_to_the_server_what_nobody_asked_for() {
    let request = CreateRequest {
        id: "p-1".to_owned(),
        ipus: 4,
        gcds: 2,
        replicas: None,
        reconfigurable: false,
        relocatable: false,
    };
    let sent = proto::CreatePartitionRequest::from(&request);
    assert!(!sent.relocatable);
    let requirements = sent.requirements.unwrap();
    let expected = proto::PartitionRequirements {
        id: "p-1".to_owned(),
        size: 4,
        num_gcds: 2,
        ..Default::default()
    };
    assert_eq!(requirements, expected);
}

impl ListedPartition {
    fn without_gcds(mut self) -> Self {
        self.gcds = 0;
        self
    }
}

#[test]
fn no_text_of_a_controller_is_kept_that_does_not_fit() {
    let hostile = || format!("\u{1b}[31m\u{7}\r\n\0\u{202e}{}", "é".repeat(1 << 20));
    let state = PartitionState::from(proto::PartitionStatus {
        errors: vec![hostile(); 1_000],
        ..Default::default()
    });
    assert_eq!(state.errors.len(), ERRORS_MAX);
    let device = Device::from(proto::IpuofDevice {
        ip: hostile(),
        chip_id: hostile(),
        ..Default::default()
    });
    let partition = ListedPartition::from(proto::Partition {
        id: hostile(),
        ..Default::default()
    });
    let mut texts = state.errors;
    texts.extend([device.ip, device.chip_id, partition.id]);
    for text in texts {
        assert!(text.len() <= ERROR_MAX, "{}", text.len());
        assert!(text.chars().all(ipu_text::is_plain), "{text}");
    }
}
