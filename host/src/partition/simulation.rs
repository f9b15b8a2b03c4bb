//! Drives the state machine against a model of the API server and two controllers, with crashes,
//! lost replies, late effects and a second replica at every point, and checks what must never happen.

mod platform;
mod world;

use proptest::prelude::*;

use platform::Mishap;
use world::World;

#[derive(Clone, Debug)]
enum Action {
    /// A replica carries out its next step.
    Step(usize, Mishap),
    /// A replica is killed and starts again.
    Crash(usize),
    /// A call that was on its way for long arrives.
    Deliver(usize),
    /// A controller goes down, or comes back.
    Toggle(usize),
    /// Controllers get on with their work, and time passes.
    Progress(i64),
    /// A partition goes to ERROR, or disappears.
    Harm { pick: usize, vanish: bool },
    /// The owner starts a Pod, if it may.
    StartPod,
    /// The owner's Pods end.
    StopPods,
    /// The owner asks for a reset.
    AskReset,
    /// The owner gives the partition back, and may want it again.
    Delete { again: bool },
}

fn action() -> impl Strategy<Value = Action> {
    let mishap = prop_oneof![
        6 => Just(Mishap::None),
        1 => Just(Mishap::LostReply),
        1 => Just(Mishap::Late),
        1 => Just(Mishap::Refused),
    ];
    prop_oneof![
        60 => (0..2_usize, mishap).prop_map(|(who, mishap)| Action::Step(who, mishap)),
        5 => (0..2_usize).prop_map(Action::Crash),
        4 => (0..8_usize).prop_map(Action::Deliver),
        3 => (0..2_usize).prop_map(Action::Toggle),
        8 => (1..120_i64).prop_map(Action::Progress),
        2 => (0..8_usize, any::<bool>()).prop_map(|(pick, vanish)| Action::Harm { pick, vanish }),
        4 => Just(Action::StartPod),
        3 => Just(Action::StopPods),
        1 => Just(Action::AskReset),
        1 => any::<bool>().prop_map(|again| Action::Delete { again }),
    ]
}

fn act(world: &mut World, action: &Action) {
    match action {
        Action::Step(who, mishap) => {
            world.step(*who, *mishap);
        }
        Action::Crash(who) => world.crash(*who),
        Action::Deliver(pick) => world.platform.deliver(*pick),
        Action::Toggle(which) => world.platform.toggle(*which),
        Action::Progress(seconds) => world.progress(*seconds),
        Action::Harm { pick, vanish } => world.platform.harm(*pick, *vanish),
        Action::StartPod => world.start_pod(),
        Action::StopPods => world.platform.stop_pods(),
        Action::AskReset => world.ask_reset(),
        Action::Delete { again } => world.delete(*again),
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nothing_is_left_over_whatever_happens(actions in prop::collection::vec(action(), 0..150)) {
        let mut world = World::new();
        for action in &actions {
            act(&mut world, action);
        }
        world.platform.stop_pods();
        world.delete(false);
        world.settle();
        prop_assert!(world.object.is_none(), "the object goes");
        prop_assert_eq!(world.platform.left(), Vec::<String>::new(), "nothing is left on a controller");
    }

    #[test]
    fn a_wanted_partition_is_served_once_the_trouble_is_over(
        actions in prop::collection::vec(action(), 0..150),
    ) {
        let mut world = World::new();
        for action in &actions {
            act(&mut world, action);
        }
        world.platform.stop_pods();
        world.settle();
        let left = world.platform.left();
        if let Some(id) = world.ready_id() {
            prop_assert_eq!(left, vec![id], "one partition, and it is the one");
        } else {
            prop_assert_eq!(left.len(), world.failed_but_listed(), "{:?}", world.object);
        }
    }
}

/// Every place in the plain course of events at which a process can die, one after the other.
#[test]
fn a_crash_after_any_single_effect_is_healed() {
    for mishap in [
        Mishap::None,
        Mishap::LostReply,
        Mishap::Late,
        Mishap::Refused,
    ] {
        for fatal in 0..40 {
            let mut world = World::new();
            for count in 0..80 {
                world.step(0, if count == fatal { mishap } else { Mishap::None });
                if count == fatal {
                    world.crash(0);
                }
                world.progress(1);
            }
            let id = world.ready_id().expect("it is ready in the end");
            world.settle();
            assert_eq!(world.platform.left(), [id], "{mishap:?} at step {fatal}");
            world.delete(false);
            world.settle();
            assert!(world.object.is_none(), "{mishap:?} at step {fatal}");
            assert!(
                world.platform.left().is_empty(),
                "{mishap:?} at step {fatal}"
            );
        }
    }
}

/// What the demo shows with SIGKILL: the controller has the partition, and nobody noted it.
#[test]
fn a_partition_that_was_formed_and_not_noted_is_taken() {
    let mut world = World::new();
    world.step_until_created(0);
    let made = world.platform.left();
    world.crash(0);
    world.settle();
    assert_eq!(world.platform.left(), made);
    assert_eq!(world.ready_id().as_ref(), made.first());
}
