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

/// Where every reason stands: what it means, and what to do.
const DOCUMENTS: [&str; 2] = ["crds/README.md", MESSAGES];

const MESSAGES: &str = "charts/ipu-operator/docs/messages.md";

fn document(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

#[test]
fn every_reason_is_documented() {
    let files = rust_files("host/src");
    let written: BTreeSet<&str> = WRITERS
        .iter()
        .flat_map(|writer| {
            let (_, text) = files
                .iter()
                .find(|(path, _)| path.ends_with(writer))
                .unwrap_or_else(|| panic!("no file {writer}"));
            words(shipped(text))
        })
        .filter(|word| !OTHERS.contains(word))
        .collect();
    assert!(written.len() > 30, "the files are read: {written:?}");
    for path in DOCUMENTS {
        let document = document(path);
        let missing: Vec<_> = written
            .iter()
            .filter(|word| !document.contains(&format!("`{word}`")))
            .collect();
        assert!(missing.is_empty(), "{path} does not name {missing:?}");
    }
}

#[test]
fn every_warning_of_the_logs_is_documented() {
    let document = document(MESSAGES);
    let told: Vec<&str> = document.split('`').skip(1).step_by(2).collect();
    let files = rust_files("host/src");
    let logged: BTreeSet<String> = files
        .iter()
        .filter(|(path, _)| !path.ends_with("tests.rs") && !path.ends_with("wasm/store.rs"))
        .flat_map(|(_, text)| warnings(shipped(text)))
        .collect();
    assert!(logged.len() > 30, "the files are read: {logged:?}");
    let missing: Vec<_> = logged
        .iter()
        .filter(|line| {
            !told
                .iter()
                .any(|said| said.len() > 9 && line.starts_with(said))
        })
        .collect();
    assert!(missing.is_empty(), "{MESSAGES} does not name {missing:?}");
}

/// A file without its own tests.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
}

/// The sentences of `warn!` and `error!`: the last literal of each. Those that consist of a cause and
/// nothing else are that cause's.
fn warnings(text: &str) -> Vec<String> {
    let calls = ["warn!(", "error!("].map(|call| text.split(call).skip(1));
    let calls = calls.into_iter().flatten();
    let sentence = |call: &str| {
        let literal = arguments(call).rsplit('"').nth(1)?;
        let bare = literal.replace("\\\n", " ");
        let words: Vec<_> = bare.split_whitespace().collect();
        let is_cause = ["{}", "{complaint}", "{line}", "{}; trying again"].contains(&literal);
        (!is_cause).then(|| words.join(" "))
    };
    calls.filter_map(sentence).collect()
}

/// What stands before the parenthesis that ends a call.
fn arguments(call: &str) -> &str {
    let mut depth = 1;
    let end = call.find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &call[..end.unwrap_or(call.len())]
}

/// Literals of one capitalised word. What stands between two literals is never just a word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').filter(|piece| {
        piece.starts_with(char::is_uppercase) && piece.chars().all(char::is_alphanumeric)
    })
}
