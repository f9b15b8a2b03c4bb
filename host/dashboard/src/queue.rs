//! Pure: the order in which waiting IPUPartitions are served, for people.

use ipu_api::ipupartition::IPUPartition;
use ipu_placement::queue::{self, Member};
use jiff::Timestamp;
use serde::Serialize;

/// A position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Position {
    /// From 1.
    pub position: usize,
    /// The number of IPUPartitions that wait.
    pub waiting: usize,
}

/// What the order of the queue depends on.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Name of the IPUPartition.
    pub name: &'a str,
    /// UID of its owner.
    pub owner_uid: &'a str,
    /// Creation time.
    pub created: Timestamp,
    /// Whether it is useful only together with others of its owner.
    pub is_in_gang: bool,
    /// Whether it waits.
    pub is_waiting: bool,
}

/// The names of those that wait, in the order of the queue. Partitions that are useful only
/// together have one place: that of the first of them, whether it waits or not.
pub fn order(partitions: &[IPUPartition], now: Timestamp) -> Vec<&str> {
    order_of(partitions.iter().map(|one| entry(one, now)))
}

/// The same order, of entries.
pub fn order_of<'a>(entries: impl Iterator<Item = Entry<'a>> + Clone) -> Vec<&'a str> {
    // The operator decides what is requested; the order does not depend on it.
    let member = |one: Entry<'a>| Member {
        owner: one.owner_uid,
        created: Some(one.created),
        name: one.name,
        is_requested: true,
    };
    let in_gangs = entries.clone().filter(|one| one.is_in_gang).map(member);
    let waiting = entries.filter(|one| one.is_waiting).map(member);
    queue::order(in_gangs, waiting, Timestamp::UNIX_EPOCH)
}

/// The position of one of them in this order.
pub fn position(order: &[&str], name: &str) -> Option<Position> {
    let index = order.iter().position(|one| *one == name)?;
    Some(Position {
        position: index + 1,
        waiting: order.len(),
    })
}

fn entry(partition: &IPUPartition, now: Timestamp) -> Entry<'_> {
    let metadata = &partition.metadata;
    let created = metadata.creation_timestamp.as_ref();
    Entry {
        name: metadata.name.as_deref().unwrap_or_default(),
        owner_uid: &partition.spec.owner.uid,
        created: created.map_or(now, |time| time.0),
        is_in_gang: partition.spec.options.gang_size.is_some(),
        is_waiting: partition.is_waiting(),
    }
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "objects of tests read best as literals where they are used"
)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn partition(name: &str, owner: &str, second: u32, gang: Value, phase: &str) -> IPUPartition {
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUPartition",
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {
                "owner": {
                    "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
                    "namespace": "default", "name": owner, "uid": owner,
                },
                "slot": 0, "ipus": 1, "gcds": 1, "options": {"gangSize": gang},
            },
            "status": {"phase": phase},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_queue_is_in_the_order_of_creation_and_a_gang_has_the_place_of_its_first() {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let all = [
            partition("late", "late", 9, Value::Null, "Pending"),
            partition("b", "same-second", 5, Value::Null, "Pending"),
            partition("a", "same-second-too", 5, Value::Null, "Pending"),
            partition("gang-1", "gang", 8, json!(2), "Pending"),
            partition("gang-0", "gang", 3, json!(2), "Ready"),
            partition("served", "served", 1, Value::Null, "Creating"),
        ];
        let order = order(&all, now);
        assert_eq!(order, ["gang-1", "a", "b", "late"]);
        let third = Position {
            position: 3,
            waiting: 4,
        };
        assert_eq!(position(&order, "b"), Some(third));
        assert_eq!(position(&order, "served"), None);
    }
}
