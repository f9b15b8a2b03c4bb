//! The choice, as a table over controllers and their free blocks.

use guest_sdk::cases;
use guest_sdk::placer::{Outcome, PassedOver, SizeCount};

use super::*;

/// A controller with these free blocks.
fn controller(name: &str, total: u32, blocks: &[u32]) -> Controller {
    let free_blocks = blocks.iter().map(|&ipus| SizeCount { ipus, count: 1 });
    Controller {
        largest_free: blocks.iter().copied().max().unwrap_or(0),
        free_blocks: free_blocks.collect(),
        ..cases::controller(name, total, total - blocks.iter().sum::<u32>())
    }
}

fn requirements(ipus: u32) -> Requirements<'static> {
    Requirements {
        ipus,
        node_selector: &[],
    }
}

fn chosen(ipus: u32, controllers: &[Controller]) -> String {
    match choose(requirements(ipus), controllers, &[]) {
        Decision::Try(name) => name,
        Decision::Wait(_) => "waits".to_owned(),
        Decision::Reject(why) => why,
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
    (odd.used_ipus, odd.largest_free) = (0, 8);
    assert_eq!(chosen(8, &[odd]), "odd");
}

#[test]
fn a_controller_with_a_blocker_is_passed_over() {
    let controllers = [controller("near", 16, &[4]), controller("far", 16, &[16])];
    let attempts = [Attempt {
        controller: "near".to_owned(),
        outcome: Outcome::Refused,
        reason: "it refused".to_owned(),
    }];
    let far = Decision::Try("far".to_owned());
    assert_eq!(choose(requirements(4), &controllers, &attempts), far);
    let selector = [("vipu".to_owned(), "near".to_owned())];
    let requirements = Requirements {
        ipus: 4,
        node_selector: &selector,
    };
    let passed_over = [
        ("near", "was tried: it refused"),
        (
            "far",
            "its nodes are labelled vipu=far, and the Pods ask for vipu=near",
        ),
    ];
    let passed_over = passed_over.map(|(controller, reason)| PassedOver {
        controller: controller.to_owned(),
        reason: reason.to_owned(),
    });
    let waits = Decision::Wait(passed_over.into());
    assert_eq!(choose(requirements, &controllers, &attempts), waits);
}

#[test]
fn a_request_is_rejected_only_if_no_controller_can_ever_serve_it() {
    let full = controller("full", 16, &[]);
    let Decision::Wait(reasons) = choose(requirements(16), std::slice::from_ref(&full), &[]) else {
        unreachable!("it is large enough");
    };
    assert_eq!(
        reasons[0].reason,
        "16 of its 16 IPUs are used, and the largest free partition is 0, smaller than the 16 requested"
    );
    let mut unreachable = controller("unreachable", 16, &[]);
    unreachable.unreachable = Some("refused".to_owned());
    assert_eq!(
        chosen(32, &[full.clone(), unreachable]),
        "no V-IPU controller can ever serve 32 IPUs (full: has 16 IPUs in all, fewer than the 32 \
         requested; unreachable: has 16 IPUs in all, fewer than the 32 requested)"
    );
    let unknown = controller("unknown", 0, &[]);
    assert_eq!(chosen(32, &[full, unknown]), "waits");
    assert_eq!(
        choose(requirements(32), &[], &[]),
        Decision::Wait(Vec::new())
    );
}
