//! Histories of IPUPartitions, and what each leaves in the tally.

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

/// A tally that knows these partitions.
fn knowing(objects: &[Guarded]) -> Tally {
    let mut tally = Tally::default();
    tally.hear(&Event::Init);
    for object in objects {
        tally.hear(&Event::InitApply(object.clone()));
    }
    tally.hear(&Event::InitDone);
    tally
}

fn promise(object: &Guarded) -> Promise {
    Promise::to(object.0.as_ref().ok().unwrap())
}

#[test]
fn nothing_is_said_before_the_partitions_are_listed() {
    let mut tally = Tally::default();
    assert_eq!(tally.of("a", ""), None);
    tally.hear(&Event::Init);
    tally.hear(&Event::InitApply(object("1", "a", 4, &ready())));
    assert_eq!(tally.of("a", ""), None);
    tally.hear(&Event::InitDone);
    assert_eq!(tally.of("a", ""), Some(used(4, 1, 0, 0)));
    assert_eq!(tally.of("b", ""), Some(Usage::default()));
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
        let tally = knowing(&[object("1", "a", 4, &status)]);
        assert_eq!(tally.of("a", ""), Some(expected), "{status}");
        assert_eq!(tally.of("a", "1"), Some(Usage::default()), "{status}");
    }
}

#[test]
fn what_comes_and_goes_is_followed_and_a_new_list_forgets_what_is_gone() {
    let mut tally = knowing(&[object("1", "a", 4, &waits()), object("2", "a", 8, &ready())]);
    assert_eq!(tally.of("a", ""), Some(used(8, 1, 4, 1)));
    tally.hear(&Event::Apply(object("1", "a", 4, &ready())));
    assert_eq!(tally.of("a", ""), Some(used(12, 2, 0, 0)));
    tally.hear(&Event::Delete(object("2", "a", 8, &ready())));
    assert_eq!(tally.of("a", ""), Some(used(4, 1, 0, 0)));
    tally.hear(&Event::Init);
    tally.hear(&Event::InitApply(object("3", "b", 2, &ready())));
    assert_eq!(
        tally.of("a", ""),
        Some(used(4, 1, 0, 0)),
        "until it is whole"
    );
    tally.hear(&Event::InitDone);
    assert_eq!(tally.of("a", ""), Some(Usage::default()));
    assert_eq!(tally.of("b", ""), Some(used(2, 1, 0, 0)));
}

#[test]
fn one_that_cannot_be_read_any_more_counts_as_it_was() {
    let mut tally = knowing(&[object("1", "a", 4, &ready())]);
    let broken = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "1", "uid": "1"}, "spec": {"owner": null},
    });
    let broken: Guarded = serde_json::from_value(broken).unwrap();
    assert!(broken.0.is_err());
    tally.hear(&Event::Apply(broken.clone()));
    assert_eq!(tally.of("a", ""), Some(used(4, 1, 0, 0)));
    tally.hear(&Event::Delete(broken));
    assert_eq!(tally.of("a", ""), Some(Usage::default()));
}

#[test]
fn of_two_that_were_asked_at_the_same_moment_one_is_asked_again() {
    let (one, other) = (object("1", "a", 4, &waits()), object("2", "a", 4, &waits()));
    let mut tally = knowing(&[one.clone(), other.clone()]);
    let stamp = tally.stamp();
    assert!(tally.promise(promise(&one), stamp));
    assert!(!tally.promise(promise(&other), stamp));
    assert_eq!(tally.of("a", "2"), Some(used(4, 1, 0, 0)));
    let stamp = tally.stamp();
    assert!(tally.promise(promise(&other), stamp));
    assert_eq!(tally.of("a", ""), Some(used(8, 2, 0, 0)));
}

#[test]
fn a_promise_counts_until_what_came_of_it_is_seen() {
    let waiting = object("1", "a", 4, &waits());
    let mut tally = knowing(std::slice::from_ref(&waiting));
    let stamp = tally.stamp();
    assert!(tally.promise(promise(&waiting), stamp));
    tally.hear(&Event::Apply(waiting.clone()));
    assert_eq!(tally.of("a", ""), Some(used(4, 1, 0, 0)), "an old view");
    let stamp = tally.stamp();
    tally.hear(&Event::Apply(object("1", "a", 4, &tried("unknown"))));
    assert_eq!(tally.of("a", ""), Some(used(4, 1, 0, 0)));
    assert_eq!(tally.stamp(), stamp, "nobody was given anything more");
    tally.hear(&Event::Apply(object("1", "a", 4, &tried("refused"))));
    assert_eq!(tally.of("a", ""), Some(used(0, 0, 4, 1)));
}

#[test]
fn a_promise_made_during_a_list_counts_after_it_and_one_to_a_partition_that_is_gone_does_not() {
    let waiting = object("1", "a", 4, &waits());
    let mut tally = knowing(std::slice::from_ref(&waiting));
    tally.hear(&Event::Init);
    tally.hear(&Event::InitApply(waiting.clone()));
    let stamp = tally.stamp();
    assert!(tally.promise(promise(&waiting), stamp));
    tally.hear(&Event::InitDone);
    assert_eq!(tally.of("a", ""), Some(used(4, 1, 0, 0)));
    tally.hear(&Event::Delete(waiting.clone()));
    let stamp = tally.stamp();
    assert!(tally.promise(promise(&waiting), stamp));
    assert_eq!(tally.of("a", ""), Some(Usage::default()));
}

#[test]
fn a_promise_that_nothing_came_of_is_withdrawn_or_goes_with_its_partition() {
    let waiting = object("1", "a", 4, &waits());
    for is_withdrawn in [true, false] {
        let mut tally = knowing(std::slice::from_ref(&waiting));
        let stamp = tally.stamp();
        assert!(tally.promise(promise(&waiting), stamp));
        if is_withdrawn {
            tally.withdraw("1");
            assert_eq!(tally.of("a", ""), Some(used(0, 0, 4, 1)));
        } else {
            tally.hear(&Event::Delete(waiting.clone()));
            assert_eq!(tally.of("a", ""), Some(Usage::default()));
        }
    }
}

#[test]
fn the_others_are_those_with_the_most_and_few_enough() {
    let objects: Vec<_> = (0..200_u32)
        .map(|number| {
            let namespace = format!("n{number:03}");
            object(&number.to_string(), &namespace, number + 1, &ready())
        })
        .collect();
    let tally = knowing(&objects);
    let others = tally.others("n199");
    assert_eq!(others.len(), OTHERS_MAX);
    assert!(!others.contains_key("n199") && !others.contains_key("n070"));
    assert_eq!(others["n198"], used(199, 1, 0, 0));
}
