//! Strategies of property tests: invalid replies of a controller.

use proptest::prelude::*;

use super::invariants;
use super::proto;

/// Answers of a controller: its list of partitions, its IPUs, and consecutive statuses with the
/// hours between them.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    partitions: Vec<proto::Partition>,
    entries: Vec<proto::list_ipu_attributes_reply::Entry>,
    looks: Vec<(proto::PartitionStatus, i64)>,
}

impl Answers {
    /// Checks the invariants of every result.
    pub(super) fn check(self) {
        invariants::check_listed(self.partitions, self.entries);
        invariants::check_failure_stats(self.looks);
    }
}

/// Any answers.
pub(super) fn answers() -> impl Strategy<Value = Answers> {
    let partitions = prop::collection::vec(partition(), 0..12);
    let looks = prop::collection::vec((status(), 0..40_i64), 0..10);
    (partitions, agents(), looks).prop_map(|(partitions, entries, looks)| Answers {
        partitions,
        entries,
        looks,
    })
}

/// Ids with many duplicates.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0..4_u8).prop_map(|number| format!("p-{number}")),
        1 => Just(String::new()),
        1 => any::<String>(),
        1 => (250..300_usize).prop_map(|length| "x".repeat(length)),
    ]
}

/// Numbers of an enum, known and unknown.
fn state() -> impl Strategy<Value = i32> {
    prop_oneof![6 => -1..7_i32, 1 => any::<i32>()]
}

pub(super) fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..9_u32, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn partition() -> impl Strategy<Value = proto::Partition> {
    let spec = (0..9_u32, number(), number()).prop_map(|(ipus, first, num_gcds)| {
        let places = (0..ipus).map(|index| proto::PartitionIpu {
            topology_id: first.wrapping_add(index),
            ..Default::default()
        });
        proto::PartitionSpec {
            ipus: places.collect(),
            num_gcds,
            ..Default::default()
        }
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
    let text = prop::sample::select(&["", "é", "link lost"][..]).prop_map(str::to_owned);
    let texts = prop::collection::vec(text, 0..3);
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
    let names = prop::sample::select(&["", "ag0", "ag1", "ag2", "ag3"][..]);
    let entry = (names.prop_map(str::to_owned), numbers).prop_map(|(agent, numbers)| {
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
