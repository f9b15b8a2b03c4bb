//! Mistakes in the decisions on V-IPU controllers.

use super::{FoundBy, Mutation, Tests};

/// The tests of the requests for a controller, and of the passes over them.
const PLACEMENT_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-placement",
    named: "tests::",
    bound: None,
});

/// The tests of the reconciles that call one controller.
const PERMITS_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-partitions",
    named: "controllers::permits::",
    bound: None,
});

/// The tests of controllers under two names.
const DUPLICATES_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-partitions",
    named: "controllers::duplicates::",
    bound: None,
});

const DUPLICATES: &str = "host/partitions/src/controllers/duplicates.rs";
const PERMITS: &str = "host/partitions/src/controllers/permits.rs";
const REQUESTS: &str = "host/placement/src/requests.rs";
const REQUEST: &str = "host/placement/src/requests/request.rs";
const CYCLE: &str = "host/placement/src/cycle.rs";
const NAMESPACE_BUDGETS: &str = "host/placement/src/namespace_budgets.rs";

/// Every mistake in these decisions that is tried.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "the latest request is decided first",
        file: REQUESTS,
        text: "self.undecided.first() else {",
        instead: "self.undecided.last() else {",
        found_by: PLACEMENT_TESTS,
    },
    Mutation {
        name: "a decision counts although its partition has changed",
        file: REQUESTS,
        text: "if request.number != turn.number {",
        instead: "if request.number < turn.number {",
        found_by: PLACEMENT_TESTS,
    },
    Mutation {
        name: "a request that no reconcile needs keeps its controller",
        file: REQUESTS,
        text: "            && request.end_reconcile(ended)
        {",
        instead: "            && (request.end_reconcile(ended) || request.controller().is_some())
        {",
        found_by: PLACEMENT_TESTS,
    },
    Mutation {
        name: "two decisions of a pass count the same IPUs",
        file: CYCLE,
        text: "*sizes.entry(ipus).or_default() += 1;",
        instead: "*sizes.entry(ipus).or_default() += 0;",
        found_by: PLACEMENT_TESTS,
    },
    Mutation {
        name: "one failed write gives away the controller of a request",
        file: REQUEST,
        text: "self.is_needed = self.failures < FAILURES_MAX;",
        instead: "self.is_needed = self.failures == 0;",
        found_by: PLACEMENT_TESTS,
    },
    Mutation {
        name: "each pass of a slow policy begins with the first request",
        file: NAMESPACE_BUDGETS,
        text: "self.first = std::mem::take(&mut self.next);",
        instead: "self.next.clear();",
        found_by: PLACEMENT_TESTS,
    },
    Mutation {
        name: "reconciles of controllers that do not answer take all permits",
        file: PERMITS,
        text: "if there.taken >= left.max(OWN) {",
        instead: "if left == 0 && there.taken >= OWN {",
        found_by: PERMITS_TESTS,
    },
    Mutation {
        name: "a second name of a controller is another controller while it is empty",
        file: DUPLICATES,
        text: "!of_first.is_empty() && of_first.is_disjoint(ids)",
        instead: "of_first.is_disjoint(ids)",
        found_by: DUPLICATES_TESTS,
    },
];
