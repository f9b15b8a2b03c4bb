//! Tests of which sizes are tried again, and when.

use super::*;
use crate::samples;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn view(used: u32) -> ControllerView {
    samples::view("pod1", 16, used)
}

fn largest(refusals: &mut Refusals, used: u32, now: Timestamp) -> u32 {
    let mut views = [view(used)];
    refusals.limit(&mut views, now);
    views[0].largest_free
}

#[test]
fn the_reason_of_a_refusal_is_that_of_the_sizes_that_are_free() {
    let mut refusals = Refusals::default();
    refusals.refused("pod1", "a", 4, "no such block", at(100));
    let refused = refusals.limit(&mut [view(8)], at(101));
    let reasons_for = |ipus: u32| {
        let reasons = ["pod1", "pod2"].map(|controller| WaitingReason {
            controller: controller.to_owned(),
            reason: "its own".to_owned(),
        });
        let reasons = explained(reasons.to_vec(), &refused, ipus);
        reasons
            .into_iter()
            .map(|one| one.reason)
            .collect::<Vec<_>>()
    };
    let why = "was tried: no such block; 8 of its 16 IPUs are free, perhaps not together";
    assert_eq!(reasons_for(8), [why, "its own"]);
    assert_eq!(
        reasons_for(16),
        ["its own", "its own"],
        "so many are not free"
    );
    assert!(refusals.limit(&mut [view(14)], at(101)).is_empty());
}

#[test]
fn a_refusal_with_unusual_options_says_nothing_of_other_requests() {
    let usual = PartitionOptions {
        replicas: Some(2),
        gang_size: Some(4),
        ..PartitionOptions::default()
    };
    assert!(are_options_usual(&usual));
    for (reconfigurable, relocatable) in [(true, false), (false, true)] {
        let unusual = PartitionOptions {
            reconfigurable,
            relocatable,
            ..usual.clone()
        };
        assert!(!are_options_usual(&unusual), "{unusual:?}");
    }
}

#[test]
fn a_refused_size_does_not_fit_until_something_has_changed() {
    let refused = || {
        let mut refusals = Refusals::default();
        refusals.refused("pod1", "a", 8, "it refused", at(100));
        refusals.refused("pod2", "a", 2, "it refused", at(100));
        assert_eq!(largest(&mut refusals, 8, at(100)), 4);
        refusals
    };
    let mut repeated = refused();
    repeated.refused("pod1", "a", 4, "it refused", at(600));
    assert_eq!(largest(&mut repeated, 8, at(1_000)), 2);
    assert_eq!(largest(&mut repeated, 8, at(1_200)), 8, "it is old");
    let mut listed = refused();
    for (ipus, expected) in [(8, 4), (10, 4), (10, 4), (8, 8)] {
        listed.listed("pod1", ipus);
        assert_eq!(largest(&mut listed, 8, at(100)), expected, "{ipus}");
    }
    let mut removed = refused();
    removed.released("pod1");
    assert_eq!(largest(&mut removed, 8, at(100)), 8);
    for (ipus, expected) in [(4, 4), (8, 8)] {
        let mut created = refused();
        created.created("pod1", ipus);
        assert_eq!(largest(&mut created, 8, at(100)), expected);
    }
}

/// Whether a request of so many IPUs may be sent at this second.
fn may_try(refusals: &Refusals, ipus: u32, second: i64) -> bool {
    let standing = refusals.standing(at(second));
    standing.attempts(&[view(0)], "b", ipus, &[]).is_empty()
}

fn is_due(refusals: &Refusals, second: i64) -> bool {
    may_try(refusals, 8, second)
}

#[test]
fn one_request_is_tried_again_after_pauses_that_grow_to_a_minute() {
    let mut refusals = Refusals::default();
    let mut now = 100;
    for pause in [10, 20, 40, 60, 60] {
        refusals.refused("pod1", "a", 8, "it refused", at(now));
        assert!(!is_due(&refusals, now + pause - 1), "{pause} s");
        assert!(is_due(&refusals, now + pause), "{pause} s");
        now += pause;
        // A smaller one says nothing of this size.
        refusals.tried("pod1", 4, at(now));
        assert!(is_due(&refusals, now), "{pause} s");
        refusals.tried("pod1", 16, at(now));
        assert!(!is_due(&refusals, now), "{pause} s");
    }
    // What was listed before the last refusal says nothing of releases since.
    refusals.listed("pod1", 16);
    refusals.refused("pod1", "a", 8, "it refused", at(now));
    refusals.listed("pod1", 12);
    assert!(!is_due(&refusals, now));
    refusals.listed("pod1", 11);
    assert!(is_due(&refusals, now), "IPUs were released");
    refusals.refused("pod1", "a", 8, "it refused", at(now));
    assert!(is_due(&refusals, now + 10), "the pauses begin again");
}

#[test]
fn a_larger_request_takes_no_attempt_from_a_smaller_one() {
    let mut refusals = Refusals::default();
    refusals.refused("pod1", "a", 4, "no block", at(100));
    let mut now = 110;
    for _ in 0..5 {
        assert!(may_try(&refusals, 8, now), "{now}");
        refusals.tried("pod1", 8, at(now));
        refusals.refused("pod1", "a", 8, "no block", at(now));
        now += 70;
        assert!(may_try(&refusals, 4, now), "{now}");
    }
    assert!(!may_try(&refusals, 8, now - 69), "its own pause");
    assert!(refusals.created("pod1", 4) && !refusals.created("pod1", 4));
    assert!(may_try(&refusals, 4, now - 69));
}

#[test]
fn requests_that_were_under_way_together_double_no_pause() {
    let mut refusals = Refusals::default();
    for _ in 0..9 {
        refusals.refused("pod1", "a", 8, "it refused", at(100));
    }
    assert!(is_due(&refusals, 110));
}

#[test]
fn a_standing_refusal_is_an_attempt_of_each_request_that_seems_to_fit() {
    let mut refusals = Refusals::default();
    refusals.refused("pod1", "a", 4, "no block", at(100));
    let own = [PlaceAttempt {
        controller: "pod1".to_owned(),
        outcome: PlaceOutcome::Refused,
        reason: "no block".to_owned(),
    }];
    let tried_by = |partition: &str, second: i64, used: u32, ipus: u32, own: &[PlaceAttempt]| {
        let standing = refusals.standing(at(second));
        let attempts = standing.attempts(&[view(used)], partition, ipus, own);
        attempts
            .into_iter()
            .map(|attempt| attempt.reason)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        tried_by("a", 101, 8, 4, &[]),
        ["no block"],
        "before its status has it"
    );
    let tried = |second, used, ipus, own: &[PlaceAttempt]| tried_by("b", second, used, ipus, own);
    assert_eq!(tried(101, 8, 4, &own), ["no block"]);
    assert_eq!(tried(101, 8, 8, &[]), [FOR_OTHERS]);
    assert!(tried(101, 8, 2, &own).is_empty(), "a smaller one");
    assert!(tried(101, 14, 4, &own).is_empty(), "so many are not free");
    assert!(tried(110, 8, 4, &own).is_empty(), "it is due");
}
