//! The walk, shown one change at a time on two controllers of which the first has free capacity.

use guest_sdk::cases::controller;

use super::*;

/// The IPUs and the node selector of the request, the controllers, and the earlier attempts.
struct World {
    ipus: u32,
    node_selector: Vec<(String, String)>,
    controllers: Vec<Controller>,
    attempts: Vec<Attempt>,
}

fn tried(name: &str) -> Attempt {
    Attempt {
        controller: name.to_owned(),
        outcome: Outcome::Refused,
        reason: "no IPUs are adjacent".to_owned(),
    }
}

fn asking_for(world: &mut World, node: &str) {
    let label = ("vipu".to_owned(), node.to_owned());
    world.node_selector = vec![("zone".to_owned(), "a".to_owned()), label];
}

/// The difference of one case.
type Change = fn(&mut World);

fn decide(change: Change) -> Decision {
    let mut world = World {
        ipus: 16,
        node_selector: Vec::new(),
        controllers: vec![controller("pod1", 16, 0), controller("pod2", 64, 0)],
        attempts: Vec::new(),
    };
    change(&mut world);
    let requirements = Requirements {
        ipus: world.ipus,
        node_selector: &world.node_selector,
    };
    place(requirements, &world.controllers, &world.attempts)
}

#[test]
fn the_first_that_can_serve_is_tried() {
    let cases: [(&str, Change, &str); 9] = [
        ("all have free capacity", |_| {}, "pod1"),
        ("too small in all", |world| world.ipus = 32, "pod2"),
        (
            "full",
            |world| world.controllers[0] = controller("pod1", 16, 16),
            "pod2",
        ),
        ("tried", |world| world.attempts.push(tried("pod1")), "pod2"),
        (
            "unreachable",
            |world| world.controllers[0].unreachable = Some("refused".to_owned()),
            "pod2",
        ),
        (
            "no schedulable node",
            |world| world.controllers[0].unschedulable = Some("1 is cordoned".to_owned()),
            "pod2",
        ),
        (
            "no node",
            |world| world.controllers[0].has_nodes = false,
            "pod2",
        ),
        ("other node", |world| asking_for(world, "pod2"), "pod2"),
        ("its own node", |world| asking_for(world, "pod1"), "pod1"),
    ];
    for (name, change, expected) in cases {
        assert_eq!(decide(change), Decision::Try(expected.to_owned()), "{name}");
    }
}

#[test]
fn waiting_names_the_reason_of_each_controller() {
    check_waiting(&[
        (
            "all full",
            |world| {
                world.controllers[0] = controller("pod1", 16, 8);
                world.controllers[1] = controller("pod2", 64, 60);
            },
            ["8 of its 16 IPUs are used", "60 of its 64"],
        ),
        (
            "free, but not together",
            |world| {
                world.controllers[0].used_ipus = 0;
                world.controllers[0].largest_free = 8;
                world.controllers[1] = controller("pod2", 64, 60);
            },
            [
                "16 of its 16 IPUs are free, but not together: a partition can have 8 now",
                "60 of its 64",
            ],
        ),
        (
            "all tried",
            |world| world.attempts = vec![tried("pod1"), tried("pod2")],
            ["was tried: no IPUs are adjacent", "was tried"],
        ),
        (
            "too small, and an unreachable one that may serve",
            |world| {
                world.ipus = 32;
                world.controllers[1].unreachable = Some("timed out".to_owned());
            },
            ["has 16 IPUs in all, fewer than the 32", "timed out"],
        ),
    ]);
    assert_eq!(
        decide(|world| world.controllers.clear()),
        Decision::Wait(Vec::new())
    );
}

#[test]
fn waiting_names_unknown_controllers_and_those_without_nodes() {
    check_waiting(&[
        (
            "never seen, so of unknown size",
            |world| {
                world.controllers[1].unreachable = Some("refused".to_owned());
                world.controllers[1].total_ipus = 0;
                asking_for(world, "pod2");
            },
            ["vipu=pod1, and the Pods ask for vipu=pod2", "refused"],
        ),
        (
            "without a node, and full",
            |world| {
                world.controllers[0].has_nodes = false;
                world.controllers[1] = controller("pod2", 64, 64);
            },
            ["no node is labelled vipu=pod1; label those", "64 of its 64"],
        ),
        (
            "without a schedulable node, and too small",
            |world| {
                world.ipus = 32;
                world.controllers[1].unschedulable = Some("1 is cordoned".to_owned());
            },
            ["has 16 IPUs in all", "1 is cordoned"],
        ),
        (
            "without agents yet",
            |world| {
                world.ipus = 128;
                world.controllers[1].total_ipus = 0;
            },
            ["has 16 IPUs in all", "has no IPUs at present"],
        ),
    ]);
}

/// Checks that each change of the world makes the request wait, and the reason for each of the two
/// controllers.
fn check_waiting(cases: &[(&str, Change, [&str; 2])]) {
    for (name, change, expected) in cases {
        let Decision::Wait(passed_over) = decide(*change) else {
            panic!("{name}: {:?}", decide(*change));
        };
        assert_eq!(passed_over.len(), 2, "{name}");
        for (PassedOver { reason, .. }, expected) in passed_over.iter().zip(expected) {
            assert!(reason.contains(expected), "{name}: {reason}");
        }
    }
}

#[test]
fn what_no_controller_can_ever_serve_is_rejected() {
    let cases: [(&str, Change, &str); 3] = [
        (
            "too large",
            |world| world.ipus = 128,
            "pod2: has 64 IPUs in all",
        ),
        (
            "no such node",
            |world| asking_for(world, "pod3"),
            "pod1: its nodes are labelled vipu=pod1",
        ),
        (
            "the only node is too small",
            |world| {
                world.ipus = 32;
                asking_for(world, "pod1");
            },
            "pod1: has 16 IPUs in all, fewer than the 32 requested; pod2: its nodes",
        ),
    ];
    for (name, change, expected) in cases {
        let Decision::Reject(reason) = decide(change) else {
            panic!("{name}: {:?}", decide(change));
        };
        assert!(reason.contains(expected), "{name}: {reason}");
    }
}
