//! Possible mistakes in the partition core and in the reconciler of jobs. The simulation of the
//! core, its model check, or tests must find each of them.

mod accounts;
mod controllers;
mod core;
mod jobs;
mod placement;
mod sweep;
#[cfg(test)]
mod tests;

use std::fmt::{self, Display, Formatter};

/// Some library tests of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tests {
    /// The package.
    pub package: &'static str,
    /// A part of the names of the tests.
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
    package: "partition-simulation",
    named: "a_simulation_of_many_lives_breaks_no_invariant",
    bound: None,
};

/// The model check of the partition core.
pub const MODEL: Tests = Tests {
    package: "partition-simulation",
    named: "no_order_of_events_breaks_a_rule",
    bound: None,
};

/// Reason why the model check does not find mistakes about controllers that are renamed or leave
/// the list.
const SAME_LIST: &str = "the list of controllers does not change in the model";

/// The expected result of tests that run with a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// They find it.
    Found,
    /// They do not find it, for this reason.
    Missed(&'static str),
}

/// The check that finds a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The simulation. The small bounds of the model check do not find it, for this reason.
    Simulation(&'static str),
    /// The simulation and the model check.
    Both,
    /// The simulation and this large bound of the model check.
    Bound(&'static str),
    /// These tests, and nothing else is tried: the simulation and the model check do not run the
    /// code, or need not find the mistake, because it breaks a property that they do not check.
    Tests(Tests),
}

impl FoundBy {
    /// The tests that run with the mistake, and their expected results.
    pub fn tried(self) -> Vec<(Tests, Expected)> {
        let found = |tests| (tests, Expected::Found);
        match self {
            FoundBy::Simulation(reason) => {
                vec![found(SIMULATION), (MODEL, Expected::Missed(reason))]
            }
            FoundBy::Both => vec![found(SIMULATION), found(MODEL)],
            FoundBy::Bound(bound) => vec![found(SIMULATION), found(model_of(bound))],
            FoundBy::Tests(tests) => vec![found(tests)],
        }
    }
}

/// The model check of one bound.
pub fn model_of(bound: &'static str) -> Tests {
    Tests {
        bound: Some(bound),
        ..MODEL
    }
}

/// One mistake: a text of a file, and its replacement.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// The broken property, in a few words.
    pub name: &'static str,
    /// The file, from the top of the repository.
    pub file: &'static str,
    /// The text, which occurs exactly once.
    pub text: &'static str,
    /// Its replacement.
    pub instead: &'static str,
    /// The check that finds it.
    pub found_by: FoundBy,
}

/// Every mistake that is tried.
pub fn all() -> impl Iterator<Item = &'static Mutation> {
    let of_partitions = core::MUTATIONS.iter().chain(placement::MUTATIONS);
    let of_partitions = of_partitions
        .chain(accounts::MUTATIONS)
        .chain(controllers::MUTATIONS)
        .chain(sweep::MUTATIONS);
    of_partitions.chain(jobs::MUTATIONS)
}
