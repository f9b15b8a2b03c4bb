//! Mistakes in what the operator concludes from the lists of several V-IPU controllers, of its own
//! release and of others.

use super::{FoundBy, Mutation, SAME_LIST};

const ADVERTISE: &str = "host/partitions/src/publish/advertise/decide.rs";

/// Reason why the model check does not find mistakes about the IPUs that nodes advertise.
const NO_NODES: &str = "the model has no nodes";

/// Every mistake in these conclusions that is tried.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "the controllers that are reserved for pinned requests are not counted together",
        file: "host/placement/src/backfill/reservations.rs",
        text: "self.taken_by_bound.extend(&chosen);",
        instead: "self.taken_by_bound.extend(&chosen[..0]);",
        found_by: FoundBy::Simulation("the queue of the model has no clock"),
    },
    Mutation {
        name: "a request that a controller may serve again is rejected",
        file: "host/placement/src/known_sizes.rs",
        text: "let is_missing = total.is_none_or(|total| total < most);",
        instead: "let is_missing = total.is_some_and(|total| total > most);",
        found_by: FoundBy::Simulation("the controllers of the model always have the same IPUs"),
    },
    Mutation {
        name: "a second name of a controller is another controller",
        file: "host/partitions/src/controllers/duplicates.rs",
        text: "is_known && self.ids == other.ids",
        instead: "is_known && self.ids != other.ids",
        found_by: FoundBy::Simulation(SAME_LIST),
    },
    Mutation {
        name: "a release removes the IPUs that another one advertises",
        file: ADVERTISE,
        text: "let is_of_nobody = self.others.is_some() && others.is_empty();",
        instead: "let is_of_nobody = self.others.is_some() || others.is_empty();",
        found_by: FoundBy::Simulation(NO_NODES),
    },
    Mutation {
        name: "a release advertises its own controllers alone",
        file: ADVERTISE,
        text: "listed.into_iter().chain(others).map(|found| found.total);",
        instead: "listed.into_iter().chain(others.into_iter().take(0)).map(|found| found.total);",
        found_by: FoundBy::Simulation(NO_NODES),
    },
];
