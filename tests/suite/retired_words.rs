//! Checks the vocabulary: retired words occur only in the changelog.

use std::path::PathBuf;

use crate::sources::{documents, manifests, other_texts, repository, rust_files};

/// Retired words and phrases, each line with what replaces them. Names consist of words:
/// `is_crowded` and `IsCrowded` contain `crowded`.
const RETIRED: &str = "
agenda, keeper, roster: event queue, supervisor, hook chain
aftermath, episode, stillborn: sidecar state, failure, formation failed
answers every rule, has the last word, it may know: returns all violations, is read again, the data that it gets
crowd, crowded: load, under load
does not report which ones, do not report which ones, positions are unknown: lists the IPUs of each partition
door, entrance: secure state, connection limiter
elder, elders, younger: earlier request, later request
fleet, the lab: controller pool, harness
gives back, quota back: releases
goes once, heirs, staff: is removed when, replacements, instance
in force, line up, lineage, lineup: active, active set
leftovers, look around, surroundings: lost replies, evaluate, eviction state
lost controller, lost controllers: unreachable controller
make room, room: free space, free capacity
manner, teller: format, redactor
mend, mended, mends: fix
mishap, weather: fault, fault rates
nonsense: malformed, not valid
nothing more is made, nothing new is made: creates no more objects, gets no new partitions
overtaken, passed by: delayed by backfill
place in a queue, place in the queue: position in the queue
promised, spared: reserved, cleared
put aside, set aside, shut out: deactivate, replacing, cordon
rests: is suspended, is inactive
scene, twins: fixture, differential
shelf, tap: module store, recorder
stand together, stood together, take it off: are adjacent, remove
tell, tells, told: report, show
unasked, unheard, unsettle, untold: missing, lost, invalidate, without an answer
wish, wished: desired
";

/// The same for documents, manifests and the page of the dashboard.
const IN_DOCUMENTS: &str = "
authority: CA
give back, given back: release
helper: sidecar
kept for: reserved for
people: users
silent, silently: unreachable
session, sessions: interactive job
the original: Graphcore's operator
";

/// Phrases with a retired word that stay: terms of other programs and of the API, and those of the
/// code of conduct.
const ALLOWED: [&str; 7] = [
    "chap auth session",
    "credential helper",
    "leave session attached",
    "name helper",
    "session end time",
    "the people involved",
    "toward other people",
];

/// This file.
const THIS: &str = "tests/suite/retired_words.rs";

/// The words of a text and of its names, in lower case, each between two spaces.
fn words(text: &str) -> String {
    let mut words = String::from(" ");
    let mut is_after_lower = false;
    for letter in text.chars() {
        let is_new = is_after_lower && letter.is_uppercase();
        if letter == '\n' {
            words.push_str(" \n ");
        } else if (is_new || !letter.is_alphabetic()) && !words.ends_with(' ') {
            words.push(' ');
        }
        if letter.is_alphabetic() {
            words.extend(letter.to_lowercase());
        }
        is_after_lower = letter.is_lowercase();
    }
    words + " "
}

/// The retired words of a text, each with the words that replace it.
fn retired(text: &str, lists: &[&str]) -> Vec<String> {
    let mut words = words(text);
    for phrase in ALLOWED {
        words = words.replace(&format!(" {phrase} "), " ");
    }
    let lines = lists.iter().flat_map(|list| list.lines());
    let lines = lines.filter_map(|line| line.split_once(": "));
    let phrases = lines.flat_map(|(all, instead)| all.split(", ").map(move |one| (one, instead)));
    let found = phrases.filter(|(phrase, _)| words.contains(&format!(" {phrase} ")));
    found
        .map(|(phrase, instead)| format!("`{phrase}`; write {instead}"))
        .collect()
}

#[test]
fn no_retired_word_returns() {
    let sources: Vec<_> = ["host", "guests", "tests"]
        .into_iter()
        .flat_map(rust_files)
        .collect();
    let texts = [documents(), manifests(), other_texts()].concat();
    assert!(sources.len() > 700 && texts.len() > 110, "too few files");
    let sources = sources.iter().map(|file| (file, &[RETIRED][..]));
    let texts = texts
        .iter()
        .map(|file| (file, &[RETIRED, IN_DOCUMENTS][..]));
    let exempt = ["CHANGELOG.md", THIS].map(|path| repository().join(path));
    let checked = sources
        .chain(texts)
        .filter(|((path, _), _)| !exempt.contains(path));
    let found = checked.map(|((path, text), lists)| (path, retired(text, lists)));
    let found: Vec<(&PathBuf, _)> = found.filter(|(_, words)| !words.is_empty()).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_retired_word_is_found_in_sentences_and_in_names() {
    let list = ["rests, at rest: is suspended"];
    let found = ["`rests`; write is suspended"];
    for text in ["It Rests.", "fn count_rests() {}", "struct JobRests;"] {
        assert_eq!(retired(text, &list), found, "{text}");
    }
    assert_eq!(
        retired("is_at_rest", &list),
        ["`at rest`; write is suspended"]
    );
    assert_eq!(
        retired("arrests, at REST", &list),
        ["`at rest`; write is suspended"]
    );
    let allowed = retired("A credential helper.", &["helper: sidecar"]);
    assert_eq!(allowed, [""; 0]);
}
