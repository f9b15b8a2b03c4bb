//! The choice, as a table over controllers and their free blocks.

use super::*;

fn controller(name: &str, total: u32, blocks: &[u32]) -> Controller {
    Controller {
        name: name.to_owned(),
        blocker: None,
        total,
        used: total - blocks.iter().sum::<u32>(),
        largest_free: blocks.iter().copied().max().unwrap_or(0),
        blocks: blocks.to_vec(),
    }
}

fn chosen(ipus: u32, controllers: &[Controller]) -> String {
    match choose(ipus, controllers) {
        Choice::Try(name) => name,
        Choice::Wait(_) => "waits".to_owned(),
        Choice::Reject(why) => why,
    }
}

#[test]
fn the_smallest_sufficient_block_is_split() {
    let controllers = [
        controller("empty", 64, &[64]),
        controller("mixed", 64, &[32, 4]),
        controller("half", 64, &[16, 8]),
        controller("full", 64, &[]),
    ];
    let cases = [
        (1, "mixed"),
        (4, "mixed"),
        (8, "half"),
        (16, "half"),
        (32, "mixed"),
        (64, "empty"),
    ];
    for (ipus, expected) in cases {
        assert_eq!(chosen(ipus, &controllers), expected, "{ipus}");
    }
}

#[test]
fn of_equal_blocks_the_fullest_controller_is_taken_and_then_the_first() {
    let controllers = [
        controller("first", 16, &[8, 4]),
        controller("fullest", 16, &[4]),
        controller("also", 16, &[4]),
    ];
    assert_eq!(chosen(4, &controllers), "fullest");
    assert_eq!(chosen(8, &controllers), "first");
    // Reserved capacity is not free, and the estimates may not fit together.
    let mut odd = controller("odd", 16, &[]);
    (odd.used, odd.largest_free) = (0, 8);
    assert_eq!(chosen(8, &[odd]), "odd");
}

#[test]
fn a_controller_with_a_blocker_is_passed_over() {
    let mut controllers = [controller("near", 16, &[4]), controller("far", 16, &[16])];
    controllers[0].blocker = Some(Blocker::Passing("was tried: it refused".to_owned()));
    assert_eq!(chosen(4, &controllers), "far");
    controllers[1].blocker = Some(Blocker::Lasting("its nodes are others".to_owned()));
    let Choice::Wait(reasons) = choose(4, &controllers) else {
        unreachable!("the first one may serve it later");
    };
    assert_eq!(
        reasons[0],
        ("near".to_owned(), "was tried: it refused".to_owned())
    );
    assert_eq!(reasons[1].1, "its nodes are others");
}

#[test]
fn a_request_is_rejected_only_if_no_controller_can_ever_serve_it() {
    let full = controller("full", 16, &[]);
    let Choice::Wait(reasons) = choose(16, std::slice::from_ref(&full)) else {
        unreachable!("it is large enough");
    };
    assert_eq!(
        reasons[0].1,
        "16 of its 16 IPUs are used, and the largest free partition is 0, smaller than the 16 requested"
    );
    let mut passing = controller("unreachable", 16, &[]);
    passing.blocker = Some(Blocker::Passing("does not answer".to_owned()));
    assert_eq!(
        chosen(32, &[full.clone(), passing]),
        "no V-IPU controller can ever serve 32 IPUs (full: has 16 IPUs in all, fewer than the 32 \
         requested; unreachable: has 16 IPUs in all, fewer than the 32 requested)"
    );
    let unknown = controller("unknown", 0, &[]);
    assert_eq!(chosen(32, &[full, unknown]), "waits");
    assert_eq!(choose(32, &[]), Choice::Wait(Vec::new()));
}
