//! The table of rules for authors of jobs. Each row matches the validation guest, and each refusal
//! of the guest has a row, or a line in the reference of the fields.

use std::collections::BTreeSet;
use std::fs;

use guest_validation::rules::{Settings, Verdict, check};
use serde_json::{Value, json};

use crate::sources::repository;

/// The document.
const DOCUMENT: &str = "examples/docs/fields.md";

/// The guest's own table: a valid job, and changes of it with the violations and warnings they
/// bring.
const CASES: &str = include_str!("../../guests/validation/src/rules/cases.json");

/// Further cases, in the same form as the guest's.
const MORE: &str = r#"[
  { "name": "replicas wrong", "change": { "spec": { "modelReplicasPerWorker": "0" } } },
  { "name": "interactive for no time", "change": { "spec": { "launcher": null, "interactive": { "ttl": 0 } } } },
  { "name": "other ttl of an interactive job", "change": { "spec": { "launcher": null, "interactive": { "ttl": 120 } } },
    "old": { "spec": { "launcher": null, "interactive": { "ttl": 60 } } } }
]"#;

/// A row of the document: its field, its rule, and the names of its cases: first the refused ones,
/// then those at the limit that are accepted.
type Row = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// The rows of the document.
const ROWS: [Row; 12] = [
    (
        "`ipusPerJobInstance`",
        "a whole number in quotes, a power of two, at most the admin's limit (`controller.maxIpusPerJob`, 64)",
        &[
            "ipus missing",
            "ipus as number",
            "ipus as words",
            "ipus empty",
            "ipus zero",
            "ipus beyond numbers",
            "ipus no power of two",
            "ipus over the limit",
        ],
        &["largest size"],
    ),
    (
        "the same",
        "divisible by workers times `modelReplicasPerWorker`",
        &["ipus not divisible", "more parts than ipus"],
        &["valid"],
    ),
    (
        "`workersPerJobInstance`, `modelReplicasPerWorker`",
        "whole numbers from 1, in quotes",
        &["workers wrong", "replicas wrong"],
        &["no sizes but the required ones"],
    ),
    (
        "`workers.replicas`",
        "missing, 1, or the same as `workersPerJobInstance`",
        &["two workers fields disagree", "replicas of no workers"],
        &[
            "valid",
            "replicas of 1 are the default of Graphcore's operator",
        ],
    ),
    (
        "`workerPerJobInstance`; `modelReplicas` and `ipusPerModelReplica`",
        "older names: missing, or the same amount as the current fields",
        &["misspelling disagrees", "deprecated fields disagree"],
        &["deprecated fields that agree"],
    ),
    (
        "`jobInstances`",
        "from 0; from 1 with a launcher; all workers of a job together have a limit, which the refusal names",
        &[
            "instances missing",
            "instances negative",
            "instances as text",
            "no instances with a launcher",
            "more Pods than any cluster",
        ],
        &["single worker scaled to nothing"],
    ),
    (
        "`launcher`, `interactive`",
        "at most one of them; a launcher has a command, an interactive job a `ttl` from 1",
        &[
            "launcher without command",
            "launcher command of numbers",
            "interactive beside a launcher",
            "interactive without ttl",
            "interactive for no time",
        ],
        &["interactive", "single worker scaled to nothing"],
    ),
    (
        "`launcher.serviceAccountName`",
        "missing, or another account than `default`",
        &[
            "launcher with the account of every Pod",
            "launcher with an empty account",
        ],
        &["launcher with resources and an account"],
    ),
    (
        "`restartPolicy.exitCodes`",
        "codes and ranges, such as `3,7,128-255`",
        &["exit codes wrong", "exit codes end with a comma"],
        &["exit codes are kept for later"],
    ),
    (
        "`workers.strategy.rollingUpdate`",
        "`maxSurge` and `maxUnavailable` are not both 0",
        &["both bounds zero"],
        &["strategy"],
    ),
    (
        "`workers.template`",
        "at least one container, each with name and image",
        &[
            "no containers",
            "no template",
            "container without image",
            "container that is a number",
        ],
        &["valid"],
    ),
    (
        "`metadata.name`",
        "short enough that the names of the Pods fit; the refusal says how many characters are left",
        &["name too long"],
        &["longest name", "no name yet"],
    ),
];

/// The rules below the table, and their cases.
const FIXED: (&str, &[&str], &[&str]) = (
    "After the job was created, sizes, `launcher`, `interactive` and `managedBy` are fixed, and so is `jobInstances` \
     of a job with a launcher.",
    &[
        "other size",
        "other workers",
        "other launcher",
        "launcher added",
        "launcher with an account",
        "launcher with another variable",
        "launcher with more resources",
        "other ttl of an interactive job",
        "other manager",
        "scaled with launcher",
    ],
    &[
        "same size in other words",
        "launcher in other notations",
        "scaled without launcher",
    ],
);

/// Cases that are accepted with a warning.
const WARNED: (&str, &[&str], &[&str]) = (
    "a worker's `command`, `args`, probes or `workers.failurePolicy` beside a launcher, and `restartPolicy` of a Pod or \
     of its first container, which have no effect; a `hostname` that several workers beside a launcher would share; a \
     mount that [only workers](launcher-volumes.md) can have; a changed template of a job with a launcher, which starts \
     the job again.",
    &[
        "worker command beside a launcher",
        "worker probe beside a launcher",
        "failure policy beside a launcher",
        "Pod restart policy",
        "one host name for several workers",
        "other name for several workers",
        "path of a GCD",
        "other template",
    ],
    &[
        "worker command without launcher",
        "worker probe without launcher",
        "failure policy",
        "host name of the only worker",
        "host name without launcher",
        "path of a GCD that the launcher has",
        "path of a GCD without launcher",
        "other template without launcher",
    ],
);

/// Refusals that `crds/REFERENCE.md` documents: types, minimums, and enums.
const IN_REFERENCE: [&str; 12] = [
    "no spec",
    "spec of another type",
    "deadline of nothing",
    "negative time to live",
    "suspend as a word",
    "manager without a domain",
    "restart of no kind",
    "restart without type",
    "negative back-off",
    "clean-up of no kind",
    "bound of no kind",
    "failure policy of no kind",
];

/// Every case, of the guest and of this test.
fn cases(table: &Value) -> Vec<Value> {
    let more: Vec<Value> = serde_json::from_str(MORE).unwrap();
    let own = table["cases"].as_array().unwrap();
    own.iter().cloned().chain(more).collect()
}

/// The answer of the guest to a case.
fn verdict(name: &str) -> Verdict {
    let table: Value = serde_json::from_str(CASES).unwrap();
    let cases = cases(&table);
    let case = cases.iter().find(|case| case["name"] == name);
    let case = case.unwrap_or_else(|| panic!("there is no case {name:?}"));
    let merged = |change: &Value| {
        let mut object = table["valid"].clone();
        json_patch::merge(&mut object, change);
        object
    };
    let old = case.get("old").map(merged);
    check(&merged(&case["change"]), old.as_ref(), Settings::default())
}

fn document() -> String {
    fs::read_to_string(repository().join(DOCUMENT)).unwrap()
}

/// The rows of the document's first table, as field and rule.
fn rows(document: &str) -> Vec<(String, String)> {
    let lines = document
        .lines()
        .skip_while(|line| *line != "| field | rule |");
    let rows = lines.skip(2).map_while(|line| {
        let (field, rule) = line
            .strip_prefix("| ")?
            .strip_suffix(" |")?
            .split_once(" | ")?;
        Some((field.to_owned(), rule.to_owned()))
    });
    rows.collect()
}

/// The names in a cell.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_row_is_what_the_guest_does() {
    let mut fields = Vec::new();
    for (field, rule, refused, taken) in ROWS {
        // "the same" is the field of the row above.
        if field != "the same" {
            fields = names(field);
        }
        for name in refused {
            let violations = verdict(name).violations;
            assert!(
                !violations.is_empty(),
                "{name} is accepted, against: {rule}"
            );
            for violation in violations {
                let found = violation.field.trim_start_matches("spec.");
                let is_of_row = fields.iter().any(|field| found.starts_with(field));
                assert!(is_of_row, "{name}, of the row {field}: {violation}");
            }
        }
        for name in taken {
            assert_eq!(verdict(name).violations, [], "{name}, by the rule: {rule}");
        }
    }
}

#[test]
fn the_document_has_these_rows_and_no_others() {
    let expected = ROWS.map(|(field, rule, ..)| (field.to_owned(), rule.to_owned()));
    assert_eq!(rows(&document()), expected, "{DOCUMENT}");
    let limit = Settings::default().max_ipus_per_job.to_string();
    assert!(ROWS[0].1.contains(&limit), "the limit is {limit}");
}

#[test]
fn the_document_lists_fixed_fields_and_warnings() {
    let document = document();
    let words: Vec<_> = document.split_whitespace().collect();
    let document = words.join(" ");
    for (sentence, ..) in [FIXED, WARNED] {
        assert!(document.contains(sentence), "{DOCUMENT} lacks: {sentence}");
    }
    for name in FIXED.1 {
        assert!(!verdict(name).violations.is_empty(), "{name}");
    }
    for name in FIXED.2 {
        assert_eq!(verdict(name).violations, [], "{name}");
    }
    for (names, count) in [(WARNED.1, 1), (WARNED.2, 0)] {
        for name in names {
            let verdict = verdict(name);
            assert_eq!(verdict.violations, [], "{name}");
            assert_eq!(verdict.warnings.len(), count, "{name}: {verdict:?}");
        }
    }
}

#[test]
fn every_refusal_of_the_guest_is_documented() {
    let shown = ROWS.iter().flat_map(|(_, _, refused, _)| refused.iter());
    let documented: BTreeSet<&str> = shown.chain(FIXED.1).chain(&IN_REFERENCE).copied().collect();
    let table: Value = serde_json::from_str(CASES).unwrap();
    let cases = cases(&table);
    let refused: BTreeSet<&str> = cases
        .iter()
        .filter(|case| case["violations"] != json!([]))
        .map(|case| case["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        documented, refused,
        "left: documented; right: refused by the guest"
    );
}
