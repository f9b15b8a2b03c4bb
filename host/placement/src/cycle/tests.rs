//! Tests of a pass: what one decision leaves for the next ones, of others and of the same gang.

use ipu_api::guest::placement::SizeCount;
use ipu_api::ipupartition::{ControllerRef, DecidedBy};
use ipu_api::vipu_controller::CordonStates;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::refusals::Refusals;
use crate::{queue, samples};

const LIMIT: Duration = Duration::from_mins(10);

fn partition(name: &str, owner: &str, gang: Option<u32>) -> IPUPartition {
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "default", "name": owner,
                "uid": owner,
            },
            "slot": 0, "ipus": 4, "gcds": 1, "options": {"gangSize": gang},
        },
    });
    serde_json::from_value(object).unwrap()
}

fn entries(partitions: &[&IPUPartition]) -> Vec<QueueEntry> {
    queue::entries(partitions.iter().copied(), Timestamp::UNIX_EPOCH)
}

/// One controller with so many free IPUs of 16.
fn found(free: u32) -> Candidates {
    let view = samples::view("pod1:8090", 16, 16 - free);
    Candidates::of(vec![view], CordonStates::new())
}

/// The largest partition that the pass offers for this one. `None`: it waits without a call of the
/// guest.
fn offered(pass: &mut Pass, partition: &IPUPartition, held: u32) -> Option<u32> {
    match pass.prepare(partition, held, Timestamp::UNIX_EPOCH) {
        Placement::Decided(_) => None,
        Placement::Ask(request) => Some(request.views()[0].largest_free),
    }
}

fn chosen() -> PlacementDecision {
    let controller = ControllerRef {
        name: "pod1:8090".to_owned(),
        ..samples::controller()
    };
    let by = DecidedBy {
        policy: "built-in".to_owned(),
        digest: None,
    };
    PlacementDecision::Try(controller, by)
}

#[test]
fn what_one_partition_gets_is_not_offered_to_the_next() {
    let [a, b] = ["a", "b"].map(|name| partition(name, name, None));
    let mut pass = Pass::new(found(8), entries(&[&a, &b]), Vec::new(), LIMIT);
    assert_eq!(offered(&mut pass, &a, 0), Some(8));
    pass.note(&a, &chosen());
    assert_eq!(offered(&mut pass, &b, 0), Some(4));
    pass.note(&b, &PlacementDecision::Wait(Vec::new()));
    assert_eq!(offered(&mut pass, &b, 0), Some(4), "it waits");
}

#[test]
fn what_is_assigned_already_is_offered_only_to_the_same_partition() {
    let [a, b] = ["a", "b"].map(|name| partition(name, name, None));
    let assignment = Assignment {
        uid: Uid::of("a"),
        controller: "pod1:8090".to_owned(),
        ipus: 4,
    };
    let mut pass = Pass::new(found(8), entries(&[&a, &b]), vec![assignment], LIMIT);
    let free = |pass: &Pass| {
        pass.places()
            .into_values()
            .map(|places| places[0])
            .sum::<u32>()
    };
    assert_eq!((offered(&mut pass, &b, 0), free(&pass)), (Some(4), 4));
    let before = pass.places();
    // Its controller has refused it.
    assert_eq!((offered(&mut pass, &a, 0), free(&pass)), (Some(8), 4));
    pass.note(&a, &PlacementDecision::Wait(Vec::new()));
    assert_eq!(offered(&mut pass, &b, 0), Some(4), "until the pass ends");
    let next = Pass::new(found(8), entries(&[&a, &b]), Vec::new(), LIMIT);
    assert!(next.has_grown(&before) && !pass.has_grown(&before));
}

/// One controller of 64 with these free blocks.
fn found_blocks(blocks: &[(u32, u32)]) -> Candidates {
    let free: u32 = blocks.iter().map(|(ipus, count)| ipus * count).sum();
    let free_blocks = blocks
        .iter()
        .map(|&(ipus, count)| SizeCount { ipus, count });
    let view = ControllerView {
        largest_free: blocks.first().map_or(0, |(ipus, _)| *ipus),
        free_blocks: free_blocks.collect(),
        ..samples::view("pod1:8090", 64, 64 - free)
    };
    Candidates::of(vec![view], CordonStates::new())
}

#[test]
fn each_free_block_serves_as_many_as_it_holds_in_one_pass() {
    let names: Vec<String> = (0..18).map(|number| format!("p-{number:02}")).collect();
    for (blocks, expected) in [
        (&[(64, 1)][..], 16),
        (&[(16, 1)], 4),
        (&[(4, 4)], 4),
        (&[(8, 1), (4, 1), (2, 3)], 3),
        (&[(2, 9)], 0),
    ] {
        let single = |name: &String| partition(name, name, None);
        let of_gang = |name: &String| partition(name, "owner", Some(expected));
        let singles: Vec<_> = names.iter().map(single).collect();
        let gang: Vec<_> = names.iter().take(expected as usize).map(of_gang).collect();
        for partitions in [singles, gang] {
            let all: Vec<_> = partitions.iter().collect();
            let mut pass = Pass::new(found_blocks(blocks), entries(&all), Vec::new(), LIMIT);
            let mut placed = 0;
            for partition in &partitions {
                if offered(&mut pass, partition, placed).is_some_and(|largest| largest >= 4) {
                    pass.note(partition, &chosen());
                    placed += 1;
                }
            }
            assert_eq!(placed, expected, "{blocks:?}");
        }
    }
}

#[test]
fn blocks_that_grow_together_are_growth() {
    let pass =
        |blocks: &[(u32, u32)]| Pass::new(found_blocks(blocks), Vec::new(), Vec::new(), LIMIT);
    let before = pass(&[(4, 2), (2, 1)]).places();
    assert!(pass(&[(8, 1), (2, 1)]).has_grown(&before));
    assert!(!pass(&[(4, 2), (2, 1)]).has_grown(&before));
    assert!(!pass(&[(4, 1), (2, 3)]).has_grown(&before));
}

#[test]
fn the_recent_capacity_of_a_chosen_controller_counts() {
    let [a, b] = ["a", "b"].map(|name| partition(name, name, None));
    let waiting = entries(&[&a, &b]);
    let mut pass = Pass::new(found(8), waiting.clone(), Vec::new(), LIMIT);
    let recent = |free| found(free).open.remove(0);
    assert!(!pass.is_confirmed("pod1:8090"));
    assert!(!pass.confirm(recent(8)) && pass.is_confirmed("pod1:8090"));
    assert!(pass.may_fit(&waiting[0], Timestamp::UNIX_EPOCH));
    // Another client has taken IPUs since.
    assert!(pass.confirm(recent(2)));
    assert_eq!(offered(&mut pass, &a, 0), Some(2));
    assert!(!pass.may_fit(&waiting[0], Timestamp::UNIX_EPOCH));
    let unlisted = samples::view("pod2:8090", 16, 0);
    assert!(!pass.confirm(unlisted), "it left the list");
}

#[test]
fn requests_that_are_decided_again_are_in_the_queue_of_the_pass() {
    let [a, b] = ["a", "b"].map(|name| partition(name, name, None));
    let mut requests = PlacementQueue::default();
    for (one, entry) in [&a, &b].into_iter().zip(entries(&[&a, &b])) {
        requests.ask(one, None, &entry, |_| true);
    }
    let mut pass = Pass::new(found(8), Vec::new(), Vec::new(), LIMIT);
    let waiting = |pass: &Pass| match pass.prepare(&b, 0, Timestamp::UNIX_EPOCH) {
        Placement::Decided(answer) => panic!("{answer:?}"),
        Placement::Ask(request) => request.waiting,
    };
    assert_eq!(waiting(&pass), []);
    pass.complete(&requests, Timestamp::UNIX_EPOCH);
    assert_eq!(waiting(&pass), [SizeCount { ipus: 4, count: 1 }]);
    // What has a controller does not wait any more.
    pass.note(&a, &chosen());
    pass.complete(&requests, Timestamp::UNIX_EPOCH);
    assert_eq!(waiting(&pass), []);
}

#[test]
fn a_gang_is_placed_if_all_members_without_a_controller_fit() {
    let members = ["a", "b", "c"].map(|name| partition(name, "owner", Some(3)));
    let [a, b, c] = &members;
    let mut pass = Pass::new(found(12), entries(&[a, b, c]), Vec::new(), LIMIT);
    for (held, member) in (0..).zip([a, b, c]) {
        assert!(offered(&mut pass, member, held).is_some(), "{member:?}");
        pass.note(member, &chosen());
    }
    let mut pass = Pass::new(found(8), entries(&[a, b, c]), Vec::new(), LIMIT);
    assert_eq!(offered(&mut pass, a, 0), None, "only two of three fit");
}

/// Whether the guest sees that the controller was tried for this partition.
fn is_tried(pass: &Pass, partition: &IPUPartition) -> bool {
    match pass.prepare(partition, 0, Timestamp::UNIX_EPOCH) {
        Placement::Decided(answer) => panic!("{answer:?}"),
        Placement::Ask(request) => !request.tried.is_empty(),
    }
}

fn with_refused_attempt(mut partition: IPUPartition, reason: &str) -> IPUPartition {
    let status = json!({
        "phase": "Pending",
        "attempts": [{
            "controller": samples::controller(), "id": "p", "outcome": "refused", "reason": reason,
        }],
    });
    partition.status = serde_json::from_value(status).unwrap();
    partition
}

fn refusing(is_due: bool) -> Candidates {
    let mut refusals = Refusals::default();
    let at = |second| Timestamp::from_second(second).unwrap();
    refusals.refused("pod1:8090", "a", 4, "no block (ResourceExhausted)", at(100));
    found(8).refusing(refusals.standing(at(if is_due { 110 } else { 100 })))
}

#[test]
fn a_refusal_for_lack_of_ipus_holds_for_later_requests_too() {
    let [a, b] = ["a", "b"].map(|name| partition(name, name, None));
    let a = with_refused_attempt(a, "no block (ResourceExhausted)");
    let pass_of = |found| Pass::new(found, entries(&[&a, &b]), Vec::new(), LIMIT);
    let pass = pass_of(refusing(false));
    assert!(is_tried(&pass, &a) && is_tried(&pass, &b));
    // IPUs were released there: the first one is not behind the second one.
    let pass = pass_of(found(8));
    assert!(!is_tried(&pass, &a) && !is_tried(&pass, &b));
    assert!(!pass.has_due_attempt());
    let mut pass = pass_of(refusing(true));
    assert!(!is_tried(&pass, &a) && !is_tried(&pass, &b) && pass.has_due_attempt());
    pass.note(&a, &chosen());
    assert!(is_tried(&pass, &b), "one at a time");
    assert!(!pass.has_due_attempt());
}

#[test]
fn a_refusal_for_another_reason_or_of_unusual_options_holds_for_its_request_alone() {
    let [a, mut b] = ["a", "b"].map(|name| partition(name, name, None));
    let denied = with_refused_attempt(a, "no such option (InvalidArgument)");
    let pass = Pass::new(found(8), entries(&[&denied, &b]), Vec::new(), LIMIT);
    assert!(is_tried(&pass, &denied) && !is_tried(&pass, &b));
    b.spec.options.reconfigurable = true;
    let mut pass = Pass::new(refusing(true), entries(&[&b]), Vec::new(), LIMIT);
    let refused = with_refused_attempt(b.clone(), "no block (ResourceExhausted)");
    assert!(!is_tried(&pass, &b) && is_tried(&pass, &refused));
    pass.note(&b, &chosen());
    let usual = partition("c", "c", None);
    assert!(!is_tried(&pass, &usual));
}
