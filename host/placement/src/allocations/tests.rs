//! The capacity of a controller that lists all, some, or none of the partitions that IPUPartitions
//! hold on it.

use std::collections::{HashMap, HashSet};

use super::*;

fn held(controller: &str, id: &str, ipus: u32) -> Allocation {
    Allocation {
        controller: controller.into(),
        id: Uid::of(id),
        ipus,
        account: None,
    }
}

/// The report of a controller of 16 IPUs that lists partitions of 4 IPUs with the first ids: the
/// ids that it accounts for, and its view. The partitions of 4 IPUs with the other ids were created
/// since.
fn said(ids: &[&str], taken: &[&str]) -> (HashSet<Uid>, ControllerView) {
    let known: HashSet<Uid> = ids.iter().chain(taken).map(|id| Uid::of(id)).collect();
    let used_ipus = 4 * u32::try_from(known.len()).unwrap();
    let view = ControllerView {
        name: "pod1:8090".to_owned(),
        label_key: "a".to_owned(),
        label_value: "b".to_owned(),
        has_nodes: true,
        unschedulable: None,
        unreachable: None,
        total_ipus: 16,
        used_ipus,
        largest_free: largest_partition(16 - used_ipus),
        free_blocks: Vec::new(),
        failures: 0,
    };
    (known, view)
}

/// Two IPUPartitions with 8 and 4 IPUs on `pod1:8090`, and one elsewhere.
fn allocations() -> Allocations {
    let mut all = Allocations::default();
    all.replace(&"ns.a-0".into(), &[], &[held("pod1:8090", "p-a", 8)]);
    all.replace(&"ns.b-0".into(), &[], &[held("pod1:8090", "p-b", 4)]);
    all.replace(&"ns.c-0".into(), &[], &[held("pod2:8090", "p-c", 4)]);
    all
}

fn left(all: &Allocations, ids: &[&str], taken: &[&str]) -> (u32, Option<Withheld>) {
    left_as(None, all, said(ids, taken))
}

fn left_as(
    account: Option<&str>,
    all: &Allocations,
    (known, mut view): (HashSet<Uid>, ControllerView),
) -> (u32, Option<Withheld>) {
    let unlisted = all.unlisted(&view.name, |id| known.contains(id), account);
    let withheld = withhold(&mut view, &unlisted);
    assert_eq!(view.largest_free, largest_partition(view.free_ipus()));
    (view.free_ipus(), withheld)
}

/// It chooses the IPUs, and may choose those that a Pod uses, however few are wanted of it.
#[test]
fn a_controller_that_has_lost_something_gives_nothing_away() {
    let all = allocations();
    let (free, withheld) = left(&all, &[], &[]);
    assert_eq!(free, 0);
    let withheld = withheld.unwrap();
    assert_eq!((withheld.ipus, withheld.besides), (12, 4));
    assert_eq!(
        withheld.reason,
        "12 more IPUs are held by IPUPartition ns.a-0 and 1 others, which it does not list any more; it may \
         assign these IPUs to another partition, so the operator creates no partitions on it until no Pod uses them"
    );
    // Nor if it lists something, or if a partition was created by hand meanwhile.
    for listed in ["p-b", "handmade"] {
        assert_eq!(left(&all, &[listed], &[]).0, 0);
    }
    assert_eq!(left(&Allocations::default(), &[], &[]), (16, None));
}

#[test]
fn what_was_made_since_the_list_was_read_counts_once() {
    let mut all = Allocations::default();
    all.replace(&"ns.b-0".into(), &[], &[held("pod1:8090", "p-b", 4)]);
    assert_eq!(left(&all, &[], &["p-b"]), (12, None));
    assert_eq!(left(&all, &["p-b"], &[]), (12, None));
    assert_eq!(left(&all, &["p-b"], &["p-b"]), (12, None));
}

#[test]
fn what_was_made_since_says_nothing_of_what_was_lost() {
    let mut all = Allocations::default();
    all.replace(&"ns.b-0".into(), &[], &[held("pod1:8090", "p-b", 4)]);
    let (free, withheld) = left(&all, &[], &["p-new"]);
    let withheld = withheld.map(|withheld| (withheld.ipus, withheld.besides));
    assert_eq!((free, withheld), (0, Some((4, 8))));
}

#[test]
fn what_a_controller_has_agreed_to_remove_is_not_lost() {
    let mut all = Allocations::default();
    all.replace(&"ns.b-0".into(), &[], &[held("pod1:8090", "p-b", 4)]);
    let without = |ids: &[&str]| {
        let (mut known, view) = said(ids, &[]);
        known.insert(Uid::of("p-b"));
        left_as(None, &all, (known, view))
    };
    assert_eq!(without(&["p-b"]), (12, None), "it goes on listing it");
    assert_eq!(without(&[]), (16, None));
}

/// The controller has it and allocates its IPUs to no other partition, but does not show it.
#[test]
fn what_another_user_asked_for_closes_no_controller() {
    let mut all = Allocations::default();
    let first = Allocation {
        account: Some("first".into()),
        ..held("pod1:8090", "p-b", 4)
    };
    all.replace(&"ns.b-0".into(), &[], &[first]);
    let (free, withheld) = left_as(Some("second"), &all, said(&[], &[]));
    let withheld = withheld.unwrap();
    assert_eq!((free, withheld.ipus, withheld.besides), (12, 4, 0));
    assert!(
        withheld.reason.contains("another V-IPU user id"),
        "{}",
        withheld.reason
    );
    assert_eq!(left_as(Some("first"), &all, said(&[], &[])).0, 0);
}

#[test]
fn released_capacity_is_free_again() {
    let mut all = allocations();
    let before = [held("pod1:8090", "p-a", 8)];
    all.replace(&"ns.other-0".into(), &before, &[]);
    assert_eq!(left(&all, &["p-b"], &[]).0, 0, "it was another's");
    all.replace(&"ns.a-0".into(), &before, &[]);
    assert_eq!(left(&all, &["p-b"], &[]).0, 12);
    all.replace(&"ns.b-0".into(), &[held("pod1:8090", "p-b", 4)], &[]);
    assert_eq!(left(&all, &[], &[]), (16, None));
}

#[test]
fn the_reason_to_wait_says_whose_they_are() {
    let (_, withheld) = left(&allocations(), &[], &[]);
    let withheld = HashMap::from([("pod1:8090".to_owned(), withheld.unwrap())]);
    let reason = |controller: &str| WaitingReason {
        controller: controller.to_owned(),
        reason: "full".to_owned(),
    };
    let explanations = explained(vec![reason("pod1:8090"), reason("pod2:8090")], &withheld);
    assert!(
        explanations[0]
            .reason
            .starts_with("full; 12 more IPUs are held by")
    );
    assert_eq!(explanations[1], reason("pod2:8090"));
}
