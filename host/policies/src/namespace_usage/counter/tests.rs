//! Histories of IPUPartitions, and the usage that each results in.

use ipu_api::guest::namespace::OTHERS_MAX;
use serde_json::{Value, json};

use super::*;

type Guarded = DeserializeGuard<IPUPartition>;

fn object(uid: &str, namespace: &str, ipus: u32, status: &Value) -> Guarded {
    serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": uid, "uid": uid},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": namespace, "name": uid, "uid": uid,
            },
            "slot": 0, "ipus": ipus, "gcds": 1,
        },
        "status": status,
    }))
    .unwrap()
}

fn waits() -> Value {
    json!({"phase": "Pending", "generation": 0})
}

/// An attempt was written down and has this outcome.
fn tried(outcome: &str) -> Value {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
    });
    let attempt = json!({"controller": controller, "id": "i", "outcome": outcome});
    let phase = if outcome == "refused" {
        "Pending"
    } else {
        "Creating"
    };
    json!({"phase": phase, "generation": 1, "attempts": [attempt]})
}

fn ready() -> Value {
    json!({"phase": "Ready", "generation": 1, "partitionId": "i"})
}

fn used(ipus: u32, partitions: u32, waiting_ipus: u32, waiting_partitions: u32) -> Usage {
    Usage {
        ipus,
        partitions,
        waiting_ipus,
        waiting_partitions,
    }
}

/// A counter that has listed these partitions.
fn listed(objects: &[Guarded]) -> UsageCounter {
    let mut counter = UsageCounter::default();
    counter.apply_event(&Event::Init);
    for object in objects {
        counter.apply_event(&Event::InitApply(object.clone()));
    }
    counter.apply_event(&Event::InitDone);
    counter
}

fn reservation(object: &Guarded) -> Reservation {
    Reservation::of(object.0.as_ref().ok().unwrap())
}

#[test]
fn usage_is_unknown_until_the_partitions_are_listed() {
    let mut counter = UsageCounter::default();
    assert_eq!(counter.of("a", ""), None);
    counter.apply_event(&Event::Init);
    counter.apply_event(&Event::InitApply(object("1", "a", 4, &ready())));
    assert_eq!(counter.of("a", ""), None);
    counter.apply_event(&Event::InitDone);
    assert_eq!(counter.of("a", ""), Some(used(4, 1, 0, 0)));
    assert_eq!(counter.of("b", ""), Some(Usage::default()));
}

#[test]
fn every_stand_counts_as_what_it_is() {
    let cases = [
        (ready(), used(4, 1, 0, 0)),
        (tried("unknown"), used(4, 1, 0, 0)),
        (tried("created"), used(4, 1, 0, 0)),
        (tried("refused"), used(0, 0, 4, 1)),
        (waits(), used(0, 0, 4, 1)),
        (Value::Null, used(0, 0, 4, 1)),
        (json!({"phase": "Rejected"}), Usage::default()),
        (json!({"phase": "Error"}), Usage::default()),
    ];
    for (status, expected) in cases {
        let counter = listed(&[object("1", "a", 4, &status)]);
        assert_eq!(counter.of("a", ""), Some(expected), "{status}");
        assert_eq!(counter.of("a", "1"), Some(Usage::default()), "{status}");
    }
}

#[test]
fn what_comes_and_goes_is_followed_and_a_new_list_forgets_what_is_gone() {
    let mut counter = listed(&[object("1", "a", 4, &waits()), object("2", "a", 8, &ready())]);
    assert_eq!(counter.of("a", ""), Some(used(8, 1, 4, 1)));
    counter.apply_event(&Event::Apply(object("1", "a", 4, &ready())));
    assert_eq!(counter.of("a", ""), Some(used(12, 2, 0, 0)));
    counter.apply_event(&Event::Delete(object("2", "a", 8, &ready())));
    assert_eq!(counter.of("a", ""), Some(used(4, 1, 0, 0)));
    counter.apply_event(&Event::Init);
    counter.apply_event(&Event::InitApply(object("3", "b", 2, &ready())));
    assert_eq!(
        counter.of("a", ""),
        Some(used(4, 1, 0, 0)),
        "until it is whole"
    );
    counter.apply_event(&Event::InitDone);
    assert_eq!(counter.of("a", ""), Some(Usage::default()));
    assert_eq!(counter.of("b", ""), Some(used(2, 1, 0, 0)));
}

#[test]
fn one_that_cannot_be_read_any_more_counts_as_it_was() {
    let mut counter = listed(&[object("1", "a", 4, &ready())]);
    let broken = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "1", "uid": "1"}, "spec": {"owner": null},
    });
    let broken: Guarded = serde_json::from_value(broken).unwrap();
    assert!(broken.0.is_err());
    counter.apply_event(&Event::Apply(broken.clone()));
    assert_eq!(counter.of("a", ""), Some(used(4, 1, 0, 0)));
    counter.apply_event(&Event::Delete(broken));
    assert_eq!(counter.of("a", ""), Some(Usage::default()));
}

#[test]
fn the_second_decision_counts_the_first_one() {
    let (one, other) = (object("1", "a", 4, &waits()), object("2", "a", 4, &waits()));
    let mut counter = listed(&[one.clone(), other.clone()]);
    counter.reserve(reservation(&one));
    assert_eq!(counter.of("a", "2"), Some(used(4, 1, 0, 0)));
    counter.reserve(reservation(&other));
    assert_eq!(counter.of("a", ""), Some(used(8, 2, 0, 0)));
}

#[test]
fn a_reservation_counts_until_the_watch_shows_its_result() {
    let waiting = object("1", "a", 4, &waits());
    let mut counter = listed(std::slice::from_ref(&waiting));
    counter.reserve(reservation(&waiting));
    counter.apply_event(&Event::Apply(waiting.clone()));
    assert_eq!(counter.of("a", ""), Some(used(4, 1, 0, 0)), "an old view");
    counter.apply_event(&Event::Apply(object("1", "a", 4, &tried("unknown"))));
    assert_eq!(counter.of("a", ""), Some(used(4, 1, 0, 0)));
    counter.apply_event(&Event::Apply(object("1", "a", 4, &tried("refused"))));
    assert_eq!(counter.of("a", ""), Some(used(0, 0, 4, 1)));
}

#[test]
fn a_reservation_survives_a_list_and_not_the_deletion_of_its_partition() {
    let waiting = object("1", "a", 4, &waits());
    let mut counter = listed(std::slice::from_ref(&waiting));
    counter.apply_event(&Event::Init);
    counter.apply_event(&Event::InitApply(waiting.clone()));
    counter.reserve(reservation(&waiting));
    counter.apply_event(&Event::InitDone);
    assert_eq!(counter.of("a", ""), Some(used(4, 1, 0, 0)));
    counter.apply_event(&Event::Delete(waiting.clone()));
    counter.reserve(reservation(&waiting));
    assert_eq!(counter.of("a", ""), Some(Usage::default()));
}

#[test]
fn a_reservation_ends_by_release_or_with_its_partition() {
    let waiting = object("1", "a", 4, &waits());
    for is_released in [true, false] {
        let mut counter = listed(std::slice::from_ref(&waiting));
        counter.reserve(reservation(&waiting));
        if is_released {
            counter.release("1");
            assert_eq!(counter.of("a", ""), Some(used(0, 0, 4, 1)));
        } else {
            counter.apply_event(&Event::Delete(waiting.clone()));
            assert_eq!(counter.of("a", ""), Some(Usage::default()));
        }
    }
}

#[test]
fn the_reservations_of_a_former_leader_are_released_and_placed_partitions_stay_placed() {
    let waiting = [object("1", "a", 4, &waits()), object("2", "b", 2, &waits())];
    let placed = object("3", "a", 8, &ready());
    let mut counter = listed(&[waiting[0].clone(), waiting[1].clone(), placed]);
    for one in &waiting {
        counter.reserve(reservation(one));
    }
    assert_eq!(counter.of("a", ""), Some(used(12, 2, 0, 0)));
    counter.release_all();
    // The next leader leaves them waiting, so that the watch shows no result.
    assert_eq!(counter.of("a", ""), Some(used(8, 1, 4, 1)));
    assert_eq!(counter.of("b", ""), Some(used(0, 0, 2, 1)));
    counter.apply_event(&Event::Apply(waiting[0].clone()));
    assert_eq!(counter.of("a", ""), Some(used(8, 1, 4, 1)));
}

#[test]
fn the_others_are_those_with_the_most_and_few_enough() {
    let objects: Vec<_> = (0..200_u32)
        .map(|number| {
            let namespace = format!("n{number:03}");
            object(&number.to_string(), &namespace, number + 1, &ready())
        })
        .collect();
    let counter = listed(&objects);
    let others = counter.others("n199");
    assert_eq!(others.len(), OTHERS_MAX);
    assert!(!others.contains_key("n199") && !others.contains_key("n070"));
    assert_eq!(others["n198"], used(199, 1, 0, 0));
}
