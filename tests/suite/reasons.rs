//! The reasons of conditions and events that people build alerts on: all of them are documented.

use std::collections::BTreeSet;

use crate::sources::{repository, rust_files};

/// Where conditions and events are written. In other files a word in capitals is something else.
const WRITERS: [&str; 6] = [
    "job/finalize.rs",
    "job/report/conditions.rs",
    "job/report/events.rs",
    "job/restart.rs",
    "job/validate.rs",
    "partition/events.rs",
];

/// Words that stand where reasons do and are none: states of a condition, and what an event calls the
/// action.
const OTHERS: [&str; 13] = [
    "Create",
    "Delete",
    "End",
    "False",
    "Place",
    "Reconcile",
    "Release",
    "Request",
    "Reset",
    "Restart",
    "Resume",
    "Suspend",
    "True",
];

#[test]
fn every_reason_is_documented() {
    let document = std::fs::read_to_string(repository().join("crds/README.md")).unwrap();
    let files = rust_files("host/src");
    let written: BTreeSet<&str> = WRITERS
        .iter()
        .flat_map(|writer| {
            let (_, text) = files
                .iter()
                .find(|(path, _)| path.ends_with(writer))
                .unwrap_or_else(|| panic!("no file {writer}"));
            words(text.split("#[cfg(test)]").next().unwrap_or_default())
        })
        .filter(|word| !OTHERS.contains(word))
        .collect();
    assert!(written.len() > 30, "the files are read: {written:?}");
    let missing: Vec<_> = written
        .into_iter()
        .filter(|word| !document.contains(&format!("`{word}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "crds/README.md does not name {missing:?}"
    );
}

/// Literals of one capitalised word. What stands between two literals is never just a word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').filter(|piece| {
        piece.starts_with(char::is_uppercase) && piece.chars().all(char::is_alphanumeric)
    })
}
