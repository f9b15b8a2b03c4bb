//! The bounds of each exploration.

use std::time::Duration;

use super::faults::Fault;

/// The bounds of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub name: &'static str,
    /// IPUs of each V-IPU controller. Other clients have one of them.
    pub controllers: &'static [u32],
    /// IPUs that each owner requests.
    pub wanted: &'static [u32],
    /// Whether the operator does not know the kind of the owners.
    pub careless: bool,
    pub faults: &'static [Fault],
    /// The maximal number of faults, each of which occurs once.
    pub most: u8,
    /// Number of times that time passes, each by the same duration.
    pub ticks: u8,
    pub tick: Duration,
    pub sweeps: u8,
    /// Attempts at one object, at most.
    pub attempts: i64,
}

/// Two controllers, one of which has capacity where the other has none.
const CONTROLLERS: &[u32] = &[4, 4];

/// Longer than the grace period of a missing partition, and shorter than the timeout of forming.
const GRACE: Duration = Duration::from_secs(31);

/// Longer than all timeouts.
const LONG: Duration = Duration::from_mins(11);

/// One owner of a known kind.
const ONE: Bound = Bound {
    name: "one owner, any fault",
    controllers: CONTROLLERS,
    wanted: &[2],
    careless: false,
    faults: &Fault::ALL,
    most: 1,
    ticks: 0,
    tick: GRACE,
    sweeps: 0,
    attempts: 4,
};

/// Two owners, and one controller with capacity for one of them.
const TWO: Bound = Bound {
    name: "two owners, a controller that comes back empty",
    wanted: &[2, 2],
    faults: &[Fault::Emptied],
    ticks: 1,
    ..ONE
};

/// One careless owner.
const CARELESS: Bound = Bound {
    name: "a careless owner, a second use",
    careless: true,
    faults: &[Fault::UsedAgain],
    ..ONE
};

/// Faults of calls, owners and releases.
const PAIRED: &[Fault] = &[
    Fault::Lost,
    Fault::Late,
    Fault::Denied,
    Fault::HandedOver,
    Fault::JobDeleted,
    Fault::UsedAgain,
];

/// Faults of calls, replicas and releases.
const REPLICAS: &[Fault] = &[
    Fault::Late,
    Fault::Doubled,
    Fault::Crashed,
    Fault::Paused,
    Fault::HandedOver,
    Fault::JobDeleted,
];

/// Faults of V-IPU controllers, and actions of owners.
const CONTROLLER_FAULTS: &[Fault] = &[
    Fault::Emptied,
    Fault::Down,
    Fault::Failed,
    Fault::Stuck,
    Fault::JobDeleted,
    Fault::UsedAgain,
];

/// Models that a plain test run explores.
pub(super) const SMALL: &[Bound] = &[ONE, TWO];

/// Models that `make soak` explores in addition.
pub(super) const LARGE: &[Bound] = &[
    Bound {
        name: "one owner, any fault, and the grace passes",
        ticks: 1,
        ..ONE
    },
    CARELESS,
    Bound {
        name: "one owner, two of six faults",
        faults: PAIRED,
        most: 2,
        ..ONE
    },
    Bound {
        name: "one owner, two faults of controllers, and the grace passes",
        faults: CONTROLLER_FAULTS,
        most: 2,
        ticks: 1,
        ..ONE
    },
    Bound {
        name: "one owner, any fault, and longer than every timeout",
        ticks: 1,
        tick: LONG,
        ..ONE
    },
    Bound {
        name: "one owner, any two faults",
        most: 2,
        ..ONE
    },
    Bound {
        name: "one owner, three faults of replicas, calls and releases",
        faults: REPLICAS,
        most: 3,
        ..ONE
    },
    Bound {
        name: "one owner, sweeps with anything in between",
        faults: &[Fault::Late, Fault::JobDeleted, Fault::HandedOver],
        most: 2,
        ticks: 1,
        sweeps: 2,
        ..ONE
    },
    Bound {
        name: "a careless owner, any fault, and a second use",
        faults: &Fault::ALL,
        most: 2,
        ..CARELESS
    },
    Bound {
        name: "two owners, any fault",
        faults: &Fault::ALL,
        ticks: 0,
        ..TWO
    },
];
