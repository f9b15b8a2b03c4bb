//! Feeds generated nonsense to what reads an admin's list and a controller's answers.
//!
//! `IPU_OPERATOR_FUZZ_CASES` says how many inputs each property gets; a failure prints the smallest one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use prost::Message;

use super::controllers;
use super::model::{
    GcdConfig, Inventory, ListedPartition, PARTITIONS_MAX, PartitionState, ReadyState, Truth,
};
use super::model::{listed, misfit, total_ipus};
use super::proto;
use super::troubles::Ledger;

/// Inputs for each property where the environment names no number.
const CASES: u32 = 1_000;

/// Longest text that is kept of a controller, in characters.
const TEXT_MAX: usize = 256;

fn config() -> ProptestConfig {
    let asked = std::env::var("IPU_OPERATOR_FUZZ_CASES").ok();
    let cases = asked.map_or(CASES, |text| text.parse().expect("a number of cases"));
    ProptestConfig::with_cases(cases)
}

/// Pieces of lists, good and bad, in any order.
fn list() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "pod1", "pod2.example", "POD1", "10.5.0.1", "10.5.0", "[fd00::1]", "[fd00::g]", "fd00::1", ":", "8090",
            "0", "65536", "+1", "ipunode", "=", "a", "example.com/pod", "-", "- ", ",", "\n", "\r\n", "#",
            " ", "\t", "\\", "\"", "'", ".", "_", "é", "\u{0}", "\u{85}", "\u{2028}", "{", "}", "|",
        ]).prop_map(ToOwned::to_owned),
        4 => "(pod[1-3]|10\\.0\\.0\\.[1-9]|\\[fd00::[1-9]\\])(:80[0-9]{2})?:[a-z/.]{1,8}=[a-zA-Z0-9_.-]{0,5}[,\n]",
        1 => any::<String>(),
        1 => (60..70_usize).prop_map(|length| "x".repeat(length)),
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

/// Ids of which many are the same.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "p-[0-3]",
        1 => Just(String::new()),
        1 => any::<String>(),
        1 => (250..300_usize).prop_map(|length| "x".repeat(length)),
    ]
}

/// Numbers of an enum, known and unknown.
fn state() -> impl Strategy<Value = i32> {
    prop_oneof![6 => -1..7_i32, 1 => any::<i32>()]
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..9_u32, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn partition() -> impl Strategy<Value = proto::Partition> {
    let spec = (0..9_usize, number()).prop_map(|(ipus, num_gcds)| proto::PartitionSpec {
        ipus: vec![proto::PartitionIpu::default(); ipus],
        num_gcds,
        ..Default::default()
    });
    (id(), prop::option::weighted(0.9, spec), state()).prop_map(|(id, spec, ready_state)| {
        proto::Partition {
            id,
            spec,
            ready_state,
            ..Default::default()
        }
    })
}

fn status() -> impl Strategy<Value = proto::PartitionStatus> {
    let stamp = (any::<i64>(), any::<i32>())
        .prop_map(|(seconds, nanos)| prost_types::Timestamp { seconds, nanos });
    let texts = prop::collection::vec("[a-zé]{0,3}", 0..3);
    (
        id(),
        state(),
        state(),
        texts,
        (number(), number()),
        prop::option::of(stamp),
    )
        .prop_map(|(partition_id, ready, operation, errors, resets, last)| {
            proto::PartitionStatus {
                partition_id,
                ready_state: ready,
                operation_state: operation,
                errors,
                max_auto_reset_retries: resets.0,
                auto_reset_retry_count: resets.1,
                last_auto_reset_time: last,
            }
        })
}

fn agents() -> impl Strategy<Value = Vec<proto::list_ipu_attributes_reply::Entry>> {
    let numbers = prop::collection::btree_set(number(), 0..6);
    let entry = ("(ag[0-3])?", numbers).prop_map(|(agent, numbers)| {
        let attributes = numbers
            .into_iter()
            .map(|number| (number, Default::default()));
        proto::list_ipu_attributes_reply::Entry {
            agent,
            ipu_attributes: attributes.collect(),
        }
    });
    prop::collection::vec(entry, 0..8)
}

/// What holds of every inventory, whatever it was made from.
fn check_inventory(inventory: &Inventory, told: &[ListedPartition]) -> Result<(), TestCaseError> {
    let sum: u64 = told.iter().map(|one| u64::from(one.ipus)).sum();
    prop_assert!(u64::from(inventory.used) <= sum);
    prop_assert!(inventory.free() <= inventory.total);
    let largest = inventory.largest_free();
    prop_assert!(largest <= inventory.free());
    prop_assert!(largest == 0 || largest.is_power_of_two());
    prop_assert!(inventory.partitions.len() <= PARTITIONS_MAX);
    let mut ids = BTreeSet::new();
    for one in inventory.partitions.iter() {
        let length = one.id.chars().count();
        prop_assert!(length <= TEXT_MAX);
        // Ids that were cut may be alike.
        prop_assert!(
            ids.insert(&one.id) || length == TEXT_MAX,
            "{:?} twice",
            one.id
        );
        prop_assert!(one.ready_state != ReadyState::Removed);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_list_of_controllers_loses_nothing_and_names_what_is_wrong(text in list()) {
        let list = controllers::parse(&text);
        let lines: Vec<&str> = text.lines().collect();
        let mut names = BTreeSet::new();
        for entry in &list.entries {
            prop_assert!(names.insert(&entry.name), "{} twice", entry.name);
            let written = format!("{}:{}={}", entry.name, entry.label_key, entry.label_value);
            let again = controllers::parse(&written);
            prop_assert_eq!(&again.entries, std::slice::from_ref(entry));
        }
        let mut before = 0;
        for problem in &list.problems {
            prop_assert!(problem.entry > before);
            before = problem.entry;
            let shown = problem.text.trim_end_matches('…');
            prop_assert!(lines[problem.line - 1].contains(shown), "{}", problem);
            prop_assert!(!problem.rule.is_empty());
        }
        let pieces = lines.iter().flat_map(|line| {
            let line = line.split('#').next().unwrap_or_default().trim();
            line.strip_prefix("- ").unwrap_or(line).split(',')
        });
        let pieces = pieces.filter(|piece| !piece.trim().is_empty()).count();
        prop_assert_eq!(list.entries.len() + list.problems.len(), pieces);
        prop_assert!(before <= pieces);
    }

    #[test]
    fn whatever_a_controller_lists_is_counted_soundly(
        partitions in prop::collection::vec(partition(), 0..12),
        entries in agents(),
    ) {
        let sum: usize = entries.iter().map(|entry| entry.ipu_attributes.len()).sum();
        let total = total_ipus(&proto::ListIpuAttributesReply { entries });
        prop_assert!(usize::try_from(total).unwrap() <= sum);
        let told = listed(proto::ListPartitionsReply { partitions: partitions.clone() });
        prop_assert!(told.len() <= partitions.len());
        let mut largest: BTreeMap<&str, usize> = BTreeMap::new();
        for one in &partitions {
            let ipus = one.spec.as_ref().map_or(0, |spec| spec.ipus.len());
            let most = largest.entry(&one.id).or_default();
            *most = ipus.max(*most);
        }
        let inventory = Inventory::new(total, told.clone());
        prop_assert!(usize::try_from(inventory.used).unwrap() <= largest.values().sum());
        check_inventory(&inventory, &told)?;
    }

    #[test]
    fn bytes_that_happen_to_be_replies_are_read_without_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok(reply) = proto::ListPartitionsReply::decode(&*bytes) {
            let told = listed(reply);
            check_inventory(&Inventory::new(16, told.clone()), &told)?;
        }
        if let Ok(reply) = proto::ListIpuAttributesReply::decode(&*bytes) {
            total_ipus(&reply);
        }
        if let Ok(reply) = proto::GetPartitionStatusReply::decode(&*bytes) {
            let _ = reply.status.map(PartitionState::from);
        }
        if let Ok(reply) = proto::GetPartitionIpuofConfigReply::decode(&*bytes) {
            let config = reply.ipuof_config.unwrap_or_default();
            for gcd in config.gcd_configs {
                misfit(&GcdConfig::from(gcd), 4, 1);
            }
        }
    }

    #[test]
    fn devices_are_told_as_they_are_and_a_misfit_only_where_there_is_one(
        devices in 0..20_usize,
        text in any::<String>(),
        ipus in number(),
        gcds in number(),
    ) {
        let device = proto::IpuofDevice { ip: text.clone(), chip_id: text, ..Default::default() };
        let gcd = proto::partition_config::Gcd {
            devices: vec![device; devices],
            ..Default::default()
        };
        let config = GcdConfig::from(gcd);
        prop_assert_eq!(config.devices.len(), devices);
        let is_right = gcds > 0 && usize::try_from(ipus / gcds).unwrap() == devices;
        let told = misfit(&config, ipus, gcds);
        prop_assert!(!(is_right && told.is_some()), "{:?}", told);
        if let Some(told) = told {
            let words = format!("made with {devices} IPUs for GCD 0, ");
            prop_assert!(told.starts_with(&words));
        }
    }

    #[test]
    fn trouble_is_never_more_than_was_seen(
        looks in prop::collection::vec((status(), 0..40_i64), 0..10),
    ) {
        let mut ledger = Ledger::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut errors = 0;
        for (status, hours) in looks {
            now = now.checked_add(SignedDuration::from_hours(hours)).unwrap();
            let id = status.partition_id.clone();
            let state = PartitionState::from(status);
            errors += u32::from(state.ready_state == ReadyState::Error);
            let truth = match state.ready_state {
                ReadyState::Removed => Truth::Absent,
                _ => Truth::Present(state),
            };
            if let Some(episode) = ledger.look("pod1:8090", &id, &truth, now) {
                ledger.found("pod1:8090", episode, &[], now);
            }
            let troubles = ledger.of("pod1:8090", now);
            prop_assert!(troubles.failed_partitions <= errors);
            prop_assert!(troubles.devices.is_empty());
        }
    }
}
