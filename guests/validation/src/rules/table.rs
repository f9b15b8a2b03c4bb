//! The rules, shown one change at a time on a valid job; the same table runs through the component.

use guest_sdk::cases::{assert_violations, assert_warnings, merged};
use serde_json::{Value, json};

use super::*;

/// The table: a valid job, and for each case a merge patch and the violations that it brings.
const TABLE: &str = include_str!("cases.json");

#[test]
fn each_violation_has_field_and_message() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let valid = &table["valid"];
    let cases = table["cases"].as_array().unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        let object = merged(valid, &case["change"]);
        let old = case.get("old").map(|change| merged(valid, change));
        let verdict = check(&object, old.as_ref(), Settings::default());
        assert_violations(case, &verdict.violations);
        if case.get("warnings").is_some() {
            assert_warnings(case, &verdict.warnings);
        }
    }
}

#[test]
fn a_stricter_limit_is_for_jobs_that_start() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let spec = |change: Value| merged(&table["valid"], &json!({"spec": change}));
    let large = json!({"ipusPerJobInstance": "8", "jobInstances": 2, "launcher": null});
    let with = |change: Value| spec(merged(&large, &change));
    let strict = Settings {
        max_ipus_per_job: 4,
    };
    let suspended = json!({"suspend": true});
    for (old, new, refused) in [
        (json!({}), suspended.clone(), false),
        (json!({}), json!({"jobInstances": 1}), false),
        (json!({}), json!({"ttlSecondsAfterFinished": 5}), false),
        (
            suspended.clone(),
            json!({"suspend": true, "jobInstances": 1}),
            false,
        ),
        (suspended.clone(), json!({"suspend": false}), true),
        (suspended, json!({}), true),
        (json!({}), json!({"jobInstances": 3}), true),
        (json!({"ipusPerJobInstance": "4"}), json!({}), true),
    ] {
        let verdict = check(&with(new.clone()), Some(&with(old.clone())), strict);
        let mut messages = verdict.violations.iter().map(|broken| &broken.message);
        let is_limit = messages.any(|message| message.contains("maxIpusPerJob"));
        assert_eq!(is_limit, refused, "{old} to {new}: {verdict:?}");
        assert!(
            refused || verdict.violations.is_empty(),
            "{old} to {new}: {verdict:?}"
        );
    }
    assert!(!check(&with(json!({})), None, strict).violations.is_empty());
}

#[test]
fn the_limit_is_the_admins() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let object = merged(
        &table["valid"],
        &json!({"spec": {"ipusPerJobInstance": "128"}}),
    );
    let settings = Settings {
        max_ipus_per_job: 128,
    };
    assert_eq!(check(&object, None, settings).violations, []);
    let settings = Settings {
        max_ipus_per_job: 100,
    };
    let verdict = check(&object, None, settings);
    assert!(
        verdict.violations[0]
            .message
            .contains("ask for \"64\" or fewer")
    );
}

#[test]
fn sizes_are_read_into_numbers() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let sizing = sizing(&table["valid"]["spec"], Settings::default()).unwrap();
    assert_eq!((sizing.instances, sizing.ipus), (2, 8));
    assert_eq!((sizing.workers, sizing.replicas_per_worker), (2, 2));
    assert_eq!((sizing.replicas(), sizing.total_workers()), (4, 4));
}

#[test]
fn a_huge_value_is_cut_in_the_message() {
    let huge = "9".repeat(1 << 20);
    let object = json!({"spec": {"ipusPerJobInstance": huge, "restartPolicy": {"type": huge}}});
    for violation in check(&object, Some(&object), Settings::default()).violations {
        assert!(violation.message.len() < 400, "{}", violation.message.len());
    }
}

/// A path of keys, for every leaf of a value.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                paths(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                paths(value, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn any_json_in_any_place_is_answered() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let valid = &table["valid"];
    let strange = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5e300),
        json!(u64::MAX),
        json!("\u{0}é"),
        json!([]),
        json!([[{}]]),
        json!({"": {}}),
    ];
    let mut places = Vec::new();
    paths(valid, "", &mut places);
    for place in places {
        for value in &strange {
            let mut object = valid.clone();
            *object.pointer_mut(&place).unwrap() = value.clone();
            let verdict = check(&object, Some(valid), Settings::default());
            assert!(verdict.violations.iter().all(|v| !v.message.is_empty()));
            assert!(verdict.warnings.iter().all(|warning| warning.len() < 256));
            check(valid, Some(&object), Settings::default());
        }
    }
}
