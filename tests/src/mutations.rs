//! Mistakes that somebody could make in the partition core or in the reconciler of jobs, each of which has to be
//! found: by the simulation of the core and its model check, or by tests.

mod core;
mod jobs;

use std::fmt::{self, Display, Formatter};

/// Some library tests of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tests {
    /// The package.
    pub package: &'static str,
    /// What the names of the tests hold.
    pub named: &'static str,
    /// The bound that the model check explores. None: the small ones.
    pub bound: Option<&'static str>,
}

impl Display for Tests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            SIMULATION => write!(f, "simulation"),
            MODEL => write!(f, "model"),
            Tests {
                bound: Some(bound), ..
            } => write!(f, "model of {bound}"),
            Tests { package, named, .. } => write!(f, "tests of {package} {named}"),
        }
    }
}

/// The simulation of the partition core.
pub const SIMULATION: Tests = Tests {
    package: "ipu-partitions",
    named: "a_simulation_of_many_lives_breaks_no_invariant",
    bound: None,
};

/// The model check of the partition core.
pub const MODEL: Tests = Tests {
    package: "ipu-partitions",
    named: "no_order_of_events_breaks_a_rule",
    bound: None,
};

/// What finds a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The simulation. The small bounds of the model check have not been seen to find it.
    Simulation,
    /// The simulation and the model check.
    Both,
    /// The simulation and this large bound of the model check.
    Bound(&'static str),
    /// These tests, where neither runs the code.
    Tests(Tests),
}

impl FoundBy {
    /// The tests that are tried with the mistake, and whether they have to find it.
    pub fn tried(self) -> Vec<(Tests, bool)> {
        match self {
            FoundBy::Simulation => vec![(SIMULATION, true), (MODEL, false)],
            FoundBy::Both => vec![(SIMULATION, true), (MODEL, true)],
            FoundBy::Bound(bound) => {
                let model = Tests {
                    bound: Some(bound),
                    ..MODEL
                };
                vec![(SIMULATION, true), (model, true)]
            }
            FoundBy::Tests(tests) => vec![(tests, true)],
        }
    }
}

/// One mistake: a text of a file, and what is written instead.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// What it breaks, in a few words.
    pub name: &'static str,
    /// The file, from the top of the repository.
    pub file: &'static str,
    /// What stands there, exactly once.
    pub text: &'static str,
    /// What stands there instead.
    pub instead: &'static str,
    /// What finds it.
    pub found_by: FoundBy,
}

/// Every mistake that is tried.
pub fn all() -> impl Iterator<Item = &'static Mutation> {
    core::MUTATIONS.iter().chain(jobs::MUTATIONS)
}
