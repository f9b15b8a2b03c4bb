//! Mistakes in the accounts of IPU-seconds.

use super::{FoundBy, Mutation, Tests};

/// The tests of the accounts of IPU-seconds.
const ACCOUNTING_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-partitions",
    named: "accounting::",
    bound: None,
});

/// The tests of when accounts are written.
const WRITE_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-partitions",
    named: "controller_objects::accounts::",
    bound: None,
});

/// Each must be detected.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "a time without observations counts as observed",
        file: "host/partitions/src/accounting/account.rs",
        text: "let is_seen = now - from <= UNSEEN_AFTER;",
        instead: "let is_seen = now - from <= 1_000 * UNSEEN_AFTER;",
        found_by: ACCOUNTING_TESTS,
    },
    Mutation {
        name: "a part of a second is reported, and counted again by the next leader",
        file: "host/partitions/src/accounting/account.rs",
        text: "            self.open.push((from, now, states));",
        instead: "            self.count(from, now, &states);",
        found_by: ACCOUNTING_TESTS,
    },
    Mutation {
        name: "a controller that returns to the list begins another account",
        file: "host/partitions/src/accounting/accounts.rs",
        text: "            if let Some((name, account)) = self.left.remove_entry(name) {",
        instead: "            if let Some((name, account)) = self.left.remove_entry(\"\") {",
        found_by: ACCOUNTING_TESTS,
    },
    Mutation {
        name: "a copy of a record is continued in place of the record",
        file: "host/partitions/src/accounting/stored.rs",
        text: "if name != expected {",
        instead: "if name.is_empty() {",
        found_by: ACCOUNTING_TESTS,
    },
    Mutation {
        name: "an account is written with each pass",
        file: "host/partitions/src/publish/controller_objects/accounts.rs",
        text: "now.duration_since(at).abs() >= AGE))",
        instead: "now.duration_since(at).abs() >= AGE.min(SignedDuration::ZERO)))",
        found_by: WRITE_TESTS,
    },
];
