//! Checks the vocabulary: replaced names and words occur only in the changelog.

mod modules;
mod names;

use std::fs;
use std::path::{Path, PathBuf};

use self::modules::MODULES;
use self::names::{FUNCTIONS, NAMES, TYPES};
use crate::sources::{documents, manifests, other_texts, repository, rust_files};

/// Words of documents, each with the word that replaces it.
const IN_DOCUMENTS: [(&str, &str); 37] = [
    ("authority", "CA"),
    ("crowd", "load test"),
    ("crowded", "under load"),
    ("elder", "earlier request"),
    ("give back", "release"),
    ("given back", "released"),
    ("gives back", "releases"),
    ("helper", "sidecar"),
    ("in force", "active"),
    ("kept for", "reserved for"),
    ("line-up", "active set"),
    ("lost controller", "unreachable controller"),
    ("lost controllers", "unreachable controllers"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("nonsense", "not valid, malformed"),
    ("overtaken", "delayed by backfill"),
    ("passed by", "backfill"),
    ("people", "users"),
    ("place in a queue", "position in a queue"),
    ("place in the queue", "position in the queue"),
    ("quota back", "release quota"),
    ("rests", "is suspended, is inactive"),
    ("room", "free capacity"),
    ("session", "interactive job"),
    ("sessions", "interactive jobs"),
    ("shelf", "module store"),
    ("silent", "unreachable, idle"),
    ("tell", "report, show"),
    ("tells", "reports, shows"),
    ("the lab", "the harness"),
    ("the original", "Graphcore's operator"),
    ("told", "reported, shown"),
    ("weather", "fault rates"),
    ("wished", "desired"),
    ("younger", "later request"),
];

/// Parts of sentences, in any file that users read, in the same way: documents, manifests, the contract, and the Rust
/// files that descriptions and messages come from.
const IN_SENTENCES: [(&str, &str); 14] = [
    ("answers every rule", "returns all violations"),
    ("has the last word", "is read again"),
    ("how a guest is tried", "options of mode Shadow"),
    ("how it is tried", "options of mode Shadow"),
    ("it may know", "the data that it gets"),
    ("nothing new is made", "gets no new partitions"),
    ("something else than", "something other than"),
    ("stand together", "are adjacent"),
    ("stood together", "were adjacent"),
    ("take it off", "remove it"),
    ("what became of a policy", "state of a policy"),
    ("where a text in pem stands", "source of a text in PEM"),
    ("where it stands", "phase, state"),
    ("why, for people", "reason, for users"),
];

/// Words of comments and texts in Rust files, in the same way.
const IN_SOURCES: [(&str, &str); 36] = [
    ("come to rest", "end"),
    ("comes to rest", "ends"),
    ("crowd", "load test"),
    ("crowded", "under load"),
    ("elder", "earlier request"),
    ("elders", "earlier requests"),
    ("for people", "for users"),
    ("given back", "released"),
    ("gives back", "releases"),
    ("goes once", "is removed when"),
    ("had room", "had free capacity"),
    ("has room", "has free capacity"),
    ("have room", "have free capacity"),
    ("line-up", "active set"),
    ("lost controller", "unreachable controller"),
    ("lost controllers", "unreachable controllers"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("no room", "no free capacity"),
    ("nonsense", "not valid, malformed"),
    ("nothing more is made", "creates no more objects"),
    ("overtaken", "delayed by backfill"),
    ("people", "users"),
    ("place in a queue", "position in a queue"),
    ("place in the queue", "position in the queue"),
    ("quota back", "release quota"),
    ("rests", "is suspended, is inactive"),
    ("silent", "unreachable, idle"),
    ("silently", "without a message"),
    ("tell", "report, show"),
    ("tells", "reports, shows"),
    ("the lab", "the harness"),
    ("told", "reported, shown"),
    ("weather", "fault rates"),
    ("younger", "later request"),
];

/// Phrases with a retired word that stay: options and terms of other programs, an example, and the code of conduct.
const ALLOWED: [&str; 6] = [
    "credential helper",
    "curl --silent",
    "leave-session-attached",
    "name: helper",
    "the people involved",
    "toward other people",
];

/// Files that list retired words for a reason: the history, and this test.
const EXEMPT: [&str; 4] = [
    "CHANGELOG.md",
    "tests/suite/retired_words.rs",
    "tests/suite/retired_words/modules.rs",
    "tests/suite/retired_words/names.rs",
];

/// The Rust files of the repository, without examples: those are projects of their own.
fn sources() -> Vec<(PathBuf, String)> {
    let folders = ["host", "guests", "tests"].into_iter();
    folders.flat_map(rust_files).collect()
}

/// The path of a file in the repository. `None`: it is exempt.
fn checked(path: &Path) -> Option<&Path> {
    let path = path.strip_prefix(repository()).unwrap_or(path);
    let is_exempt = EXEMPT.iter().any(|exempt| Path::new(exempt) == path);
    (!is_exempt).then_some(path)
}

/// Whether a character belongs to a name.
fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Whether a text contains a word, or words, between characters that belong to no name.
fn contains(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, found)| {
        let before = text[..start].chars().next_back();
        let after = text[start + found.len()..].chars().next();
        !before.is_some_and(is_of_name) && !after.is_some_and(is_of_name)
    })
}

/// Each line of the files with a retired word, and the word that replaces it.
fn hits(files: &[(PathBuf, String)], words: &[(&str, &str)], ignore_case: bool) -> Vec<String> {
    let mut hits = Vec::new();
    for (path, text) in files {
        let Some(path) = checked(path) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            let mut line = if ignore_case {
                line.to_lowercase()
            } else {
                line.to_owned()
            };
            for phrase in ALLOWED {
                line = line.replace(phrase, "");
            }
            for (word, instead) in words.iter().filter(|(word, _)| contains(&line, word)) {
                let place = format!("{}:{}", path.display(), number + 1);
                hits.push(format!("{place}: `{word}`; write {instead}"));
            }
        }
    }
    hits
}

/// Each line of the files that defines something with a retired name after one of these keywords.
fn defined(files: &[(PathBuf, String)], keywords: &[&str], names: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        let Some(path) = checked(path) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let mut words = code.split(|c: char| !is_of_name(c));
            if !words.any(|word| keywords.contains(&word)) {
                continue;
            }
            let name = words.next().unwrap_or_default();
            if let Some((_, instead)) = names.iter().find(|(retired, _)| *retired == name) {
                let place = format!("{}:{}", path.display(), number + 1);
                found.push(format!("{place}: `{name}`; write {instead}"));
            }
        }
    }
    found
}

#[test]
fn documents_contain_no_retired_word() {
    let hits = hits(&documents(), &IN_DOCUMENTS, true);
    assert!(hits.is_empty(), "{hits:#?}");
}

#[test]
fn manifests_and_the_contract_contain_no_retired_word() {
    let manifests = manifests();
    assert!(manifests.len() > 80, "only {} files", manifests.len());
    let hits = hits(&manifests, &IN_DOCUMENTS, true);
    assert!(hits.is_empty(), "{hits:#?}");
}

#[test]
fn the_page_the_notes_and_the_build_contain_no_retired_word() {
    let texts = other_texts();
    assert!(texts.len() > 30, "only {} files", texts.len());
    let words = [&IN_DOCUMENTS[..], &IN_SENTENCES].concat();
    let hits = hits(&texts, &words, true);
    assert!(hits.is_empty(), "{hits:#?}");
}

#[test]
fn no_sentence_that_users_read_is_a_retired_one() {
    let files = [documents(), manifests(), sources()].concat();
    let hits = hits(&files, &IN_SENTENCES, true);
    assert!(hits.is_empty(), "{hits:#?}");
}

#[test]
fn sources_contain_no_retired_word_or_name() {
    let sources = sources();
    assert!(sources.len() > 700, "only {} files", sources.len());
    let mut found = hits(&sources, &IN_SOURCES, true);
    found.extend(hits(&sources, &NAMES, false));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_type_or_function_has_a_retired_name() {
    let sources = sources();
    let mut found = defined(&sources, &["enum", "struct", "trait", "type"], &TYPES);
    found.extend(defined(&sources, &["fn"], &FUNCTIONS));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_module_has_a_retired_name() {
    for (folder, retired) in MODULES {
        for (path, _) in rust_files(folder) {
            let stem = path.file_stem().unwrap_or_default();
            let name = retired.iter().find(|(name, _)| stem == *name);
            if let Some((name, instead)) = name {
                panic!("{}: `{name}`; its name is {instead}", path.display());
            }
        }
    }
}

#[test]
fn the_changelog_may_say_what_things_were_called() {
    let changelog = repository().join("CHANGELOG.md");
    let changelog = [(changelog.clone(), fs::read_to_string(&changelog).unwrap())];
    assert_eq!(hits(&changelog, &IN_DOCUMENTS, true), Vec::<String>::new());
}

#[test]
fn a_definition_is_found_and_a_mention_is_not() {
    let text = "/// The struct Held.\npub(crate) struct Held<'a>(&'a str);\nlet held = Held(a);\n";
    let files = [(PathBuf::from("a.rs"), text.to_owned())];
    let found = defined(&files, &["struct"], &[("Held", "Leadership")]);
    assert_eq!(found, ["a.rs:2: `Held`; write Leadership"]);
    assert_eq!(defined(&files, &["fn"], &[("Held", "")]), [""; 0]);
}

#[test]
fn an_allowed_phrase_is_not_found_and_its_word_is() {
    let text = "No credential helper.\nA helper.\n";
    let files = [(PathBuf::from("a.md"), text.to_owned())];
    let found = hits(&files, &[("helper", "sidecar")], true);
    assert_eq!(found, ["a.md:2: `helper`; write sidecar"]);
}

#[test]
fn a_word_is_found_whole_in_any_case() {
    let text = "They Rest.\nThe job rests; `count_rest` and arrests do not count.\n";
    let files = [(PathBuf::from("a.md"), text.to_owned())];
    let found = hits(&files, &[("rests", "is suspended")], true);
    assert_eq!(found, ["a.md:2: `rests`; write is suspended"]);
    let found = hits(&files, &[("Rest", "Done")], false);
    assert_eq!(found, ["a.md:1: `Rest`; write Done"]);
}
