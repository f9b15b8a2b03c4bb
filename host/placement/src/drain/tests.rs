//! The order in which owners leave a drained controller.

use ipu_api::partition_conditions::DRAINING;
use serde_json::json;

use super::*;
use crate::samples::view;

const NOW: &str = "2026-01-01T12:00:00Z";

/// A partition of 4 IPUs on a controller, created this number of minutes ago.
fn one(owner: &str, slot: u32, on: &str, minutes: i64) -> IPUPartition {
    let now: Timestamp = NOW.parse().unwrap();
    let created = now - SignedDuration::from_mins(minutes);
    serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": format!("{owner}-{slot}"), "creationTimestamp": created},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "default",
                "name": owner, "uid": owner,
            },
            "slot": slot, "ipus": 4, "gcds": 1,
        },
        "status": {
            "phase": "Ready", "partitionId": format!("p-{owner}-{slot}"),
            "controller": {
                "name": on, "host": on, "port": 1, "labelKey": "ipunode", "labelValue": on,
            },
        },
    }))
    .unwrap()
}

fn seen(me: &IPUPartition, others: &[IPUPartition], free: u32) -> EvictionState {
    let cordons = CordonStates::from([("pod1".to_owned(), CordonState::Draining)]);
    of(
        me,
        others.iter(),
        &cordons,
        &[view("pod2", 16, 16 - free)],
        NOW.parse().unwrap(),
    )
}

#[test]
fn owners_leave_one_after_the_other_oldest_first() {
    let all = [
        one("b", 0, "pod1", 5),
        one("a", 0, "pod1", 9),
        one("a", 1, "pod1", 9),
    ];
    assert_eq!(seen(&all[1], &all, 8).eviction, Eviction::Now);
    assert_eq!(seen(&all[2], &all, 8).eviction, Eviction::Now);
    let later = "pod1 is being drained; default/a leaves it first";
    assert_eq!(
        seen(&all[0], &all, 8).eviction,
        Eviction::Later(later.to_owned())
    );
    let elsewhere = one("a", 0, "pod2", 9);
    assert_eq!(seen(&elsewhere, &all, 8).eviction, Eviction::No);
}

#[test]
fn partitions_of_one_size_are_tried_once() {
    let all: Vec<_> = (0..256)
        .map(|n| one(&format!("o{n}"), 0, "pod1", n))
        .collect();
    let pair = [one("pair", 0, "pod1", 1), one("pair", 1, "pod1", 1)];
    let (open, there) = ([view("pod2", 16, 10)], all.iter().chain(&pair));
    let mut fits = Fits::on(&open, &there.collect::<Vec<_>>());
    assert!(all.iter().all(|one| fits.all(one)));
    assert_eq!(fits.known.len(), 1);
    assert!(
        !fits.all(&pair[0]) && !fits.all(&pair[1]),
        "6 IPUs are free"
    );
    assert_eq!(fits.known.len(), 2);
}

#[test]
fn the_earliest_that_were_not_requested_to_leave_are_next() {
    let mut all: Vec<_> = (0..5)
        .map(|n| one(&format!("o{n}"), 0, "pod1", n))
        .collect();
    all[4].spec.options.pinned = true;
    let status = all[3].status.as_mut().unwrap();
    let now = NOW.parse().unwrap();
    partition_conditions::set(status, DRAINING, "ControllerDrained", "now".to_owned(), now);
    let all: Vec<_> = all.into_iter().map(Arc::new).collect();
    assert_eq!(next_to_leave(&all, 2), ["o2-0", "o1-0"]);
}

#[test]
fn none_leaves_without_capacity_and_pinned_partitions_delay_no_other() {
    let mut all = [one("a", 0, "pod1", 9), one("b", 0, "pod1", 5)];
    let Eviction::Later(why) = seen(&all[0], &all, 2).eviction else {
        panic!("there is no capacity");
    };
    assert!(
        why.contains("no other controller has free capacity for 4 IPUs"),
        "{why}"
    );
    all[0].spec.options.pinned = true;
    let Eviction::Later(why) = seen(&all[0], &all, 8).eviction else {
        panic!("it is pinned");
    };
    let mut reported = all[0].status.clone().unwrap();
    reported.message = Some(why);
    assert!(partition_conditions::holds_drain(&reported), "{reported:?}");
    assert_eq!(seen(&all[1], &all, 8).eviction, Eviction::Now);
}

#[test]
fn none_leaves_for_capacity_that_is_reserved_for_an_earlier_request() {
    let (me, now) = (one("a", 0, "pod1", 9), NOW.parse().unwrap());
    let cordons = CordonStates::from([("pod1".to_owned(), CordonState::Draining)]);
    for (minutes, expected) in [(30, false), (6, true)] {
        let mut large = one("large", 0, "pod1", minutes);
        large.metadata.uid = Some("large".to_owned());
        (large.spec.ipus, large.status) = (16, None);
        let entries = queue::entries(std::iter::once(&large), now);
        let (asked, limit) = (std::iter::empty(), Duration::from_mins(5));
        let open = vec![view("pod2", 16, 8)];
        let left = capacity_after_queue(&me, &entries, asked, open, limit, now);
        let found = of(&me, std::iter::once(&me), &cordons, &left, now);
        let leaves = found.eviction == Eviction::Now;
        assert_eq!(leaves, expected, "{:?}", found.eviction);
    }
}

#[test]
fn one_that_was_requested_long_ago_delays_no_other() {
    let fresh = [one("a", 0, "pod1", 60), one("b", 0, "pod1", 5)];
    for (since, expected) in [
        ("2026-01-01T11:58:00Z", false),
        ("2026-01-01T11:55:00Z", true),
    ] {
        let mut all = fresh.clone();
        let status = all[0].status.as_mut().unwrap();
        let (reason, message) = ("ControllerDrained", "now".to_owned());
        partition_conditions::set(status, DRAINING, reason, message, since.parse().unwrap());
        assert_eq!(
            seen(&all[1], &all, 8).eviction == Eviction::Now,
            expected,
            "{since}"
        );
    }
}

#[test]
fn partitions_of_the_owner_count_once() {
    let mut all = [
        one("a", 0, "pod1", 9),
        one("a", 1, "pod2", 9),
        one("b", 0, "pod2", 9),
    ];
    assert_eq!(seen(&all[0], &all, 8).held, 2);
    let held = all[1].status.take().unwrap();
    assert_eq!(seen(&all[0], &all, 8).held, 1);
    let released = json!({"attempts": [
        {"controller": held.controller, "id": "p-a-1", "outcome": "created"},
    ]});
    all[1].status = Some(serde_json::from_value(released).unwrap());
    assert_eq!(seen(&all[0], &all, 8).held, 1);
    assert_eq!(seen(&all[1].clone(), &all, 8).held, 1);
}
