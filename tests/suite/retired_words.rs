//! Checks the vocabulary: replaced names and words occur only in the changelog.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::{documents, manifests, repository, rust_files};

/// Words of documents, each with the word of `CONTRIBUTING.md` that replaces it.
const IN_DOCUMENTS: [(&str, &str); 20] = [
    ("authority", "CA"),
    ("crowd", "load test"),
    ("elder", "earlier request"),
    ("give back", "release"),
    ("given back", "released"),
    ("gives back", "releases"),
    ("in force", "active"),
    ("line-up", "active set"),
    ("mend", "fix"),
    ("nonsense", "not valid, malformed"),
    ("passed by", "backfill"),
    ("quota back", "release quota"),
    ("rests", "is suspended, is inactive"),
    ("room", "free capacity"),
    ("shelf", "module store"),
    ("the lab", "the harness"),
    ("the original", "Graphcore's operator"),
    ("weather", "fault rates"),
    ("wished", "desired"),
    ("younger", "later request"),
];

/// Parts of sentences, in any file that users read, in the same way: documents, manifests, the contract, and the Rust files
/// that descriptions and messages come from.
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
const IN_SOURCES: [(&str, &str); 19] = [
    ("come to rest", "end"),
    ("comes to rest", "ends"),
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
    ("mended", "fixed"),
    ("no room", "no free capacity"),
    ("nothing more is made", "creates no more objects"),
    ("quota back", "release quota"),
    ("the lab", "the harness"),
    ("weather", "fault rates"),
    ("younger", "later request"),
];

/// Names of types and functions, each with the name that replaces it.
const NAMES: [(&str, &str); 65] = [
    ("Agenda", "EventQueue"),
    ("Answering", "ResponseGuard"),
    ("AskTruth", "ReadState"),
    ("Asking", "RequestBody"),
    ("Divided", "Candidates"),
    ("Door", "SecureState"),
    ("Entrance", "ConnectionLimiter, Endpoint"),
    ("Fleet", "ControllerPool"),
    ("ForRoom", "ForCapacity"),
    ("Gate", "Authorizer"),
    ("Honest", "CooperativeEnv"),
    ("Keeper", "ManagingRelease, Supervisor"),
    ("Knowledge", "Observations"),
    ("LookAround", "EvaluateEviction"),
    ("Manner", "ErrorFormat"),
    ("Mishap", "CallFault"),
    ("NotThere", "NotFound"),
    ("Pace", "RateLimiter, KeepAlive"),
    ("Patient", "ClientTimeoutStream"),
    ("PatientAcceptor", "ClientTimeoutAcceptor"),
    ("Scene", "Fixture"),
    ("Sight", "CoveragePoint"),
    ("Standing", "ConnectionPermit"),
    ("Surroundings", "EvictionState"),
    ("TakeOver", "Adopt, BecomeLeader"),
    ("Tried", "AlreadyAttempted"),
    ("Twins", "Differential"),
    ("Waiter", "WaitingRequest"),
    ("Weather", "FaultRates"),
    ("Wish", "Permission"),
    ("ask_truth", "read_state"),
    ("asked_to_leave", "draining_requested"),
    ("count_rest", "count_idle"),
    ("digestInForce", "activeDigest"),
    ("digestWished", "desiredDigest"),
    ("find_out", "resolve_unknown"),
    ("gives_back", "releases"),
    ("has_asked", "clear_reservation"),
    ("hear_of_other", "apply_other"),
    ("inForce", "active"),
    ("inherited_partition", "adoptable_partition"),
    ("is_held_up", "is_stalled"),
    ("is_promised", "is_claimed"),
    ("lacks_room", "lacks_capacity"),
    ("lead_in_turn", "run_as_leader"),
    ("leftovers", "unsettled_attempts"),
    ("lineup", "active_set"),
    ("look_around", "evaluate_eviction"),
    ("may_stay", "without_draining"),
    ("object_names", "dns1123"),
    ("room_made", "released"),
    ("room_was_made", "capacity_released"),
    ("set_aside", "replacing"),
    ("shut_out", "cordon_reasons"),
    ("spared", "capacity_after_queue"),
    ("stillborn", "formation_failed"),
    ("take_over", "adopt, become_leader"),
    ("take_within", "acquire"),
    ("taken_over", "adoption_requested"),
    ("takes_room", "waits_for_capacity"),
    ("tell_overruled", "report_overruled"),
    ("unasked", "missing_members"),
    ("untold", "without_answer"),
    ("users_of_mine", "users_of_owner"),
    ("write_or_rest", "write_if_changed"),
];

/// Modules, by the folder of their package, each with the module that replaces it.
const MODULES: [(&str, &[(&str, &str)]); 6] = [
    (
        "host/api/src",
        &[("names", "labels, naming"), ("object_names", "dns1123")],
    ),
    (
        "host/partitions/src",
        &[
            ("agenda", "event_queue"),
            ("chance", "rng"),
            ("crowd", "load"),
            ("driver", "sim_adapter"),
            ("fleet", "controller_pool"),
            ("gate", "authorizer"),
            ("honest", "cooperative_env"),
            ("knowledge", "observations"),
            ("leftovers", "unsettled_attempts"),
            ("line", "queue"),
            ("look", "remote_state"),
            ("nonsense", "proptests"),
            ("pace", "requeue"),
            ("placing", "placement/request"),
            ("question", "query_request"),
            ("recent", "expiring_map"),
            ("record", "status_update"),
            ("refusal", "api_error"),
            ("remembered", "token_cache"),
            ("seek", "evaluate"),
            ("strict", "duplicate_keys"),
            ("surroundings", "eviction"),
            ("trouble", "faults"),
            ("turns", "queue_state"),
            ("users", "pod_users"),
            ("wanted", "lifecycle, create_request"),
            ("written", "read_your_writes"),
        ],
    ),
    (
        "host/runtime/src",
        &[
            ("entrance", "connection_limiter"),
            ("pace", "rate_limiter"),
            ("patience", "client_timeout"),
            ("places", "preemptive_semaphore"),
        ],
    ),
    (
        "tests/apiserver",
        &[
            ("leftovers", "cleanup"),
            ("line", "queue"),
            ("scene", "fixture"),
            ("stage", "job_fixture"),
            ("twins", "differential"),
        ],
    ),
    ("tests/cluster/src", &[("keeper", "supervisor")]),
    (
        "tests/e2e",
        &[
            ("crowd", "many_jobs"),
            ("scene", "fixture"),
            ("session", "interactive"),
        ],
    ),
];

/// Files that list retired words for a reason: the vocabulary, the history, and this test.
const EXEMPT: [&str; 3] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "tests/suite/retired_words.rs",
];

/// The Rust files of the repository, without examples: those are projects of their own.
fn sources() -> Vec<(PathBuf, String)> {
    let folders = ["host", "guests", "tests"].into_iter();
    folders.flat_map(rust_files).collect()
}

/// Whether a text contains a word, or words, between characters that belong to no name.
fn contains(text: &str, word: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
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
        let path = path.strip_prefix(repository()).unwrap_or(path);
        if EXEMPT.iter().any(|exempt| Path::new(exempt) == path) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let line = if ignore_case {
                line.to_lowercase()
            } else {
                line.to_owned()
            };
            for (word, instead) in words.iter().filter(|(word, _)| contains(&line, word)) {
                let place = format!("{}:{}", path.display(), number + 1);
                hits.push(format!("{place}: `{word}`; write {instead}"));
            }
        }
    }
    hits
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
fn a_word_is_found_whole_in_any_case() {
    let text = "They Rest.\nThe job rests; `count_rest` and arrests do not count.\n";
    let files = [(PathBuf::from("a.md"), text.to_owned())];
    let found = hits(&files, &[("rests", "is suspended")], true);
    assert_eq!(found, ["a.md:2: `rests`; write is suspended"]);
    let found = hits(&files, &[("Rest", "Done")], false);
    assert_eq!(found, ["a.md:1: `Rest`; write Done"]);
}
