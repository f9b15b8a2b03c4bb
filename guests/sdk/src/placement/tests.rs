//! Each reason alone, and the decision about controllers that are all passed over.

use super::*;
use crate::cases::controller;
use crate::placer::Outcome;

fn requirements(ipus: u32) -> Requirements<'static> {
    Requirements {
        ipus,
        node_selector: &[],
    }
}

fn lasting(reason: &str) -> Blocker {
    Blocker::Lasting(reason.to_owned())
}

fn passing(reason: &str) -> Blocker {
    Blocker::Passing(reason.to_owned())
}

#[test]
fn other_nodes_than_its_own_are_a_lasting_reason() {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let of = |selector: &[(String, String)]| {
        let requirements = Requirements {
            ipus: 4,
            node_selector: selector,
        };
        Blocker::of_label(&controller("a", 16, 0), requirements)
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[pair("zone", "b"), pair("vipu", "a")]), None);
    let other = "its nodes are labelled vipu=a, and the Pods ask for vipu=b";
    assert_eq!(
        of(&[pair("zone", "b"), pair("vipu", "b")]),
        Some(lasting(other))
    );
}

#[test]
fn an_unreachable_controller_and_missing_nodes_are_passing_reasons() {
    let mut controller = controller("a", 16, 0);
    assert_eq!(Blocker::of_state(&controller), None);
    controller.unschedulable = Some("1 is cordoned".to_owned());
    assert_eq!(
        Blocker::of_state(&controller),
        Some(passing("1 is cordoned"))
    );
    controller.has_nodes = false;
    let nodeless = "no node is labelled vipu=a; label those that reach its IPUs";
    assert_eq!(Blocker::of_state(&controller), Some(passing(nodeless)));
    controller.unreachable = Some("refused".to_owned());
    let unreachable = Some(passing("does not answer: refused"));
    assert_eq!(Blocker::of_state(&controller), unreachable);
}

#[test]
fn a_controller_without_ipus_is_not_too_small() {
    let (empty, small) = (controller("a", 0, 0), controller("b", 16, 0));
    let at_present = Some(passing("has no IPUs at present"));
    assert_eq!(Blocker::of_emptiness(&empty), at_present);
    assert_eq!(Blocker::of_emptiness(&small), None);
    assert_eq!(Blocker::of_size(&empty, requirements(32)), None);
    assert_eq!(Blocker::of_size(&small, requirements(16)), None);
    let too_small = Some(lasting("has 16 IPUs in all, fewer than the 32 requested"));
    assert_eq!(Blocker::of_size(&small, requirements(32)), too_small);
}

#[test]
fn the_last_attempt_counts() {
    let attempt = |controller: &str, reason: &str| Attempt {
        controller: controller.to_owned(),
        outcome: Outcome::Refused,
        reason: reason.to_owned(),
    };
    let attempts = [
        attempt("a", "first"),
        attempt("a", "last"),
        attempt("b", "other"),
    ];
    let of = |name: &str| Blocker::of_attempts(&controller(name, 16, 0), &attempts);
    assert_eq!(of("a"), Some(passing("was tried: last")));
    assert_eq!(of("c"), None);
}

#[test]
fn free_ipus_that_are_not_together_are_another_reason_than_used_ones() {
    let mut controller = controller("a", 16, 12);
    assert_eq!(Blocker::of_usage(&controller, requirements(4)), None);
    let used = "12 of its 16 IPUs are used, and the largest free partition is 4, smaller than the 8 requested";
    let found = Blocker::of_usage(&controller, requirements(8));
    assert_eq!(found, Some(passing(used)));
    (controller.used_ipus, controller.largest_free) = (8, 4);
    let apart = "8 of its 16 IPUs are free, but not together: a partition can have 4 now, fewer than the 8 requested";
    let found = Blocker::of_usage(&controller, requirements(8));
    assert_eq!(found, Some(passing(apart)));
}

#[test]
fn a_request_is_rejected_only_if_every_reason_is_lasting() {
    let decision = |blockers: &[(&str, Blocker)]| {
        let mut skipped = Skipped::default();
        for (name, blocker) in blockers {
            skipped.add(&controller(name, 16, 0), blocker.clone());
        }
        skipped.decision(requirements(32))
    };
    let small = ("a", lasting("small"));
    let full = ("b", passing("full"));
    let passed_over = [("a", "small"), ("b", "full")].map(|(controller, reason)| PassedOver {
        controller: controller.to_owned(),
        reason: reason.to_owned(),
    });
    assert_eq!(decision(&[]), Decision::Wait(Vec::new()));
    assert_eq!(
        decision(&[small.clone(), full]),
        Decision::Wait(passed_over.into())
    );
    let never = "no V-IPU controller can ever serve 32 IPUs (a: small; a: small)";
    assert_eq!(
        decision(&[small.clone(), small]),
        Decision::Reject(never.to_owned())
    );
}
