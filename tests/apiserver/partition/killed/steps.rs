//! The steps at which the proxy is killed, and the faults that delay it there.

use ipu_api::ipupartition::{AttemptOutcome, PartitionPhase};
use vipu_simulator::faults::Method::{CreatePartition, GetPartitionStatus, ListIPUAttributes};
use vipu_simulator::faults::{Down, LostReply, Method, Order};
use vipu_simulator::pod::Stage;

use super::{Arrival, Case, Life, Snapshot, Work};

/// Longer than any test, in milliseconds.
pub(super) const ENDLESS: u64 = 3_600_000;

/// Every step, in the order of a partition's life.
pub(super) fn all() -> Vec<Case> {
    let steps = [
        creating(),
        forming(),
        creating_again(),
        resetting(),
        removing(),
    ];
    steps.into_iter().flatten().collect()
}

/// A run without faults before its end.
fn life(has_come: fn(&Snapshot) -> bool) -> Life {
    Life {
        faults: Vec::new(),
        is_endless: false,
        has_come,
    }
}

/// A run in which calls of this method do not arrive.
fn lost_calls(methods: &[Method], has_come: fn(&Snapshot) -> bool) -> Life {
    let slow = |method: &Method| Order {
        slow_ms: Some(ENDLESS),
        ..Order::on(*method)
    };
    Life {
        faults: methods.iter().map(slow).collect(),
        ..life(has_come)
    }
}

/// A run in which calls of this method are carried out, and the replies are lost.
fn unanswered(method: Method, has_come: fn(&Snapshot) -> bool) -> Life {
    let hang = Order {
        lose_reply: Some(LostReply::Hang),
        ..Order::on(method)
    };
    Life {
        faults: vec![hang],
        ..life(has_come)
    }
}

/// A run in which the first controller finishes no operation.
fn endless(has_come: fn(&Snapshot) -> bool) -> Life {
    Life {
        is_endless: true,
        ..life(has_come)
    }
}

/// A run in which the first controller is down.
fn without_controller(has_come: fn(&Snapshot) -> bool) -> Life {
    let down = Order {
        down: Some(Down::Refuse),
        ..Order::default()
    };
    Life {
        faults: vec![down],
        ..life(has_come)
    }
}

/// A case in which the proxy makes a partition, with the expected number of creations.
fn make(step: &'static str, lives: Vec<Life>, arrival: Arrival, creates: usize) -> Case {
    Case {
        step,
        work: Work::Make,
        lives,
        arrival,
        creates,
    }
}

/// Whether a create has not been answered yet.
fn create_is_under_way(snapshot: &Snapshot) -> bool {
    snapshot.under_way(CreatePartition) == 1
}

fn creating() -> Vec<Case> {
    vec![
        make(
            "the finalizer is set, and a controller is being chosen",
            vec![lost_calls(&[ListIPUAttributes], |snapshot| {
                snapshot.has_finalizer() && snapshot.under_way(ListIPUAttributes) > 0
            })],
            Arrival::Never,
            1,
        ),
        make(
            "the intent is recorded, and the create arrives before the restart",
            vec![lost_calls(&[CreatePartition], create_is_under_way)],
            Arrival::Down,
            1,
        ),
        make(
            "the intent is recorded, and the create arrives long after the restart",
            vec![lost_calls(&[CreatePartition], create_is_under_way)],
            Arrival::Late,
            2,
        ),
        make(
            "it is created, the reply is lost, and another is created while that controller is down",
            vec![
                unanswered(CreatePartition, |snapshot| {
                    snapshot.lost(CreatePartition) == 1
                }),
                without_controller(|snapshot| {
                    snapshot.status().phase == PartitionPhase::Ready
                        && snapshot.attempts(AttemptOutcome::Unknown) == 1
                }),
            ],
            Arrival::Never,
            2,
        ),
    ]
}

fn forming() -> Vec<Case> {
    vec![
        make(
            "it forms, and again after that was recorded",
            vec![
                endless(|snapshot| {
                    snapshot.in_stage(|stage| matches!(stage, Stage::Creating(_))) == 1
                }),
                endless(|snapshot| snapshot.attempts(AttemptOutcome::Created) == 1),
            ],
            Arrival::Never,
            1,
        ),
        make(
            "it is ready, and the status was just written",
            vec![life(|snapshot| {
                snapshot.status().phase == PartitionPhase::Ready
            })],
            Arrival::Never,
            1,
        ),
    ]
}

fn creating_again() -> Vec<Case> {
    vec![
        make(
            "again, while it reads the result of the create",
            vec![
                lost_calls(&[CreatePartition, GetPartitionStatus], create_is_under_way),
                lost_calls(&[CreatePartition, GetPartitionStatus], |snapshot| {
                    snapshot.under_way(GetPartitionStatus) == 1
                }),
            ],
            Arrival::Late,
            2,
        ),
        make(
            "again, while the second create is under way, and both arrive late",
            vec![
                lost_calls(&[CreatePartition], create_is_under_way),
                lost_calls(&[CreatePartition], create_is_under_way),
            ],
            Arrival::Late,
            3,
        ),
    ]
}

fn resetting() -> Vec<Case> {
    use Method::ResetPartition;
    let case = |step, life, arrival| Case {
        step,
        work: Work::Reset,
        lives: vec![life],
        arrival,
        // The result of the reset is unknown, so a new partition replaces this one.
        creates: 2,
    };
    let asked = |snapshot: &Snapshot| snapshot.under_way(ResetPartition) == 1;
    vec![
        case(
            "the reset is recorded, and arrives before the restart",
            lost_calls(&[ResetPartition], asked),
            Arrival::Down,
        ),
        case(
            "the reset is recorded, and arrives long after the restart",
            lost_calls(&[ResetPartition], asked),
            Arrival::Late,
        ),
        case(
            "the reset is done and not recorded",
            unanswered(ResetPartition, |snapshot| {
                snapshot.lost(ResetPartition) == 1
            }),
            Arrival::Never,
        ),
    ]
}

fn removing() -> Vec<Case> {
    use Method::RemovePartition;
    let case = |step, lives, arrival| Case {
        step,
        work: Work::Remove,
        lives,
        arrival,
        creates: 1,
    };
    let asked = |snapshot: &Snapshot| snapshot.under_way(RemovePartition) == 1;
    let begun =
        |snapshot: &Snapshot| snapshot.in_stage(|stage| matches!(stage, Stage::Removing(_))) == 1;
    vec![
        case(
            "the removal is requested, and arrives before the restart",
            vec![lost_calls(&[RemovePartition], asked)],
            Arrival::Down,
        ),
        case(
            "the removal is requested, and arrives long after the restart",
            vec![lost_calls(&[RemovePartition], asked)],
            Arrival::Late,
        ),
        case(
            "it is being removed, and again while the proxy waits for that",
            vec![
                endless(begun),
                endless(|snapshot| snapshot.says("removes partition")),
            ],
            Arrival::Never,
        ),
        case(
            "it is removed, and the finalizer is still set",
            vec![unanswered(RemovePartition, |snapshot| {
                snapshot.lost(RemovePartition) == 1
                    && snapshot.in_stage(|_| true) == 0
                    && snapshot.has_finalizer()
            })],
            Arrival::Never,
        ),
    ]
}
