//! Mistakes in the sweep of the partition core, and in the removal of deleted objects.

use super::{FoundBy, Mutation, SAME_LIST, Tests};

/// The tests of the sweep around a fake API server.
const SWEEP_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-partitions",
    named: "sweep::tests::",
    bound: None,
});

const ORPHANS: &str = "host/ledger/src/sweep/orphans.rs";
const SWEEP: &str = "host/ledger/src/sweep.rs";

/// Every mistake in them that is tried, but the one in `core`.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "the object is deleted after the outcome of one of several attempts",
        file: "host/ledger/src/deleted.rs",
        text: "Step::Write(status) if !status.attempts.iter().any(Attempt::is_held) => {",
        instead: "Step::Write(status) if !status.attempts.is_empty() => {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "the sweep has no grace period",
        file: ORPHANS,
        text: "if suspects.contains_key(&partition) && now.saturating_sub(since) >= grace {",
        instead: "if now >= since {",
        found_by: FoundBy::Simulation("the model restores no deleted IPUPartition"),
    },
    Mutation {
        name: "the sweep removes partitions of others",
        file: ORPHANS,
        text: "if is_held(id) || !identity.marks(id) {",
        instead: "if is_held(id) || identity.tag().is_empty() {",
        found_by: FoundBy::Both,
    },
    Mutation {
        name: "a partition that a sweep cannot remove stops the sweep",
        file: SWEEP,
        text: "    pub fn failed(&mut self, error: E) {
        self.errors.push(error);",
        instead: "    pub fn failed(&mut self, error: E) {
        self.tasks.clear();
        self.errors.push(error);",
        found_by: FoundBy::Simulation("no task of a sweep fails in the model"),
    },
    Mutation {
        name: "each removal on a controller that does not answer is tried in every sweep",
        file: SWEEP,
        text: "Task::Remove((name, _)) => name != controller,",
        instead: "Task::Remove((name, _)) => name != controller || !name.is_empty(),",
        found_by: SWEEP_TESTS,
    },
    Mutation {
        name: "a sweep continues after the leadership has expired",
        file: "host/partitions/src/sweep/executor.rs",
        text: "if !self.leadership.is_valid() {",
        instead: "if !self.leadership.is_valid() && found.is_empty() {",
        found_by: SWEEP_TESTS,
    },
    Mutation {
        name: "a list with an expired token is abandoned",
        file: "host/partitions/src/sweep/lists.rs",
        text: "if status.code == 410 && beginnings < BEGINNINGS => {",
        instead: "if status.code == 410 && beginnings > BEGINNINGS => {",
        found_by: SWEEP_TESTS,
    },
    Mutation {
        name: "a partition without an owner is removed although Pods use it",
        file: SWEEP,
        text: "        if users > 0 {",
        instead: "        if users == usize::MAX {",
        found_by: SWEEP_TESTS,
    },
    Mutation {
        name: "controllers that have left the list are not swept",
        file: ORPHANS,
        text: "names.filter(|name| !is_known(name)).collect()",
        instead: "names.filter(|name| !is_known(name) && is_known(name)).collect()",
        found_by: FoundBy::Simulation(SAME_LIST),
    },
];
