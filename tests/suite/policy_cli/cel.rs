//! The guest `cel` as a component: it answers as its native code, and no expression that its
//! settings may contain overflows its stack.

use std::fs;
use std::path::Path;

use release::guests::checkout;
use serde_json::{Map, Value, json};

use super::{Folder, assert_says};

/// The table of the native tests.
const TABLE: &str = include_str!("../../../guests/cel/src/verdict/cases.json");

fn table() -> Value {
    serde_json::from_str(TABLE).unwrap()
}

fn request(object: &Value, old: Option<&Value>) -> Value {
    let mut request = json!({
        "operation": "create",
        "object": object,
        "user": {"name": "jane", "groups": ["vision"]},
        "facts": {"labels": {"tier": "trial"}},
    });
    if let Some(old) = old {
        request["operation"] = json!("update");
        request["oldObject"] = old.clone();
    }
    request
}

/// Runs cases, and asserts that all of them pass.
fn pass(cases: &[Value]) {
    let folder = Folder::new();
    fs::create_dir(folder.path("cases")).unwrap();
    for (index, case) in cases.iter().enumerate() {
        folder.write(&format!("cases/{index}.json"), case.to_string());
    }
    let passed = folder.policy("test ./cel.wasm ./cases");
    assert_says(&passed, &[&format!("{} passed", cases.len())]);
}

#[test]
fn the_component_answers_as_its_native_code() {
    let table = table();
    let valid = &table["valid"];
    let answered = table["cases"].as_array().unwrap().iter().map(|case| {
        let old = case.get("old").map(|change| {
            let mut old = valid.clone();
            json_patch::merge(&mut old, change);
            old
        });
        let violations = case["violations"].as_array().unwrap().iter();
        let violations: Vec<_> = violations
            .map(|violation| json!({"field": violation[0], "message": violation[1]}))
            .collect();
        json!({
            "settings": case["settings"],
            "request": request(valid, old.as_ref()),
            "expect": {"violations": violations},
        })
    });
    let refused = table["refused"].as_array().unwrap().iter();
    let refused = refused.filter(|case| case["settings"].is_object());
    let refused = refused.map(|case| {
        json!({
            "settings": case["settings"],
            "request": request(valid, None),
            "expect": {"error": case["error"]},
        })
    });
    pass(&answered.chain(refused).collect::<Vec<_>>());
}

/// Expressions at the limits of the settings, all of them true.
fn extreme() -> Vec<String> {
    let around = |open: &str, inner: &str, close: &str, depth: usize| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    let lists = around("[", "", "]", 12);
    let path = ".a".repeat(118);
    let loops = (0..11).fold("true".to_owned(), |inner, depth| {
        format!("[1].all(x{depth}, {inner})")
    });
    vec![
        around("(", "true", ")", 12),
        format!("{lists} == {lists}"),
        around("string(", "1", ")", 12) + " == '1'",
        around("!(!(", "true", "))", 6),
        around("!!!!(", "true", ")", 12),
        vec!["1"; 150].join("+") + " > 0",
        vec!["true"; 76].join("&&"),
        vec!["false"; 75].join("||") + "||true",
        "false ? false : ".repeat(8) + "true",
        around("(true ? ", "true", " : false)", 8),
        format!("has(object{path}) || true"),
        loops,
        format!("'{}'.size() > 2000", "a".repeat(2020)),
        around("{'a': ", "1", "}", 12) + &".a".repeat(12) + " == 1",
        "'a'.matches('^(a|b){1,20}$')".to_owned(),
    ]
}

#[test]
fn no_accepted_expression_overflows_the_stack() {
    let path = (0..122).fold(json!(1), |inner, _| {
        let mut object = Map::new();
        object.insert("a".to_owned(), inner);
        Value::Object(object)
    });
    let cases = extreme().into_iter().map(|expression| {
        json!({
            "settings": {"validations": [{"expression": expression}]},
            "request": request(&path, None),
            "expect": {"verdict": "allowed"},
        })
    });
    pass(&cases.collect::<Vec<_>>());
}

#[test]
fn the_example_limits_jobs() {
    let file = checkout().join("examples/policies/cel-limits.yaml");
    let settings = settings_of(&file);
    let job = |labels: Value, ipus: &str| {
        json!({
            "metadata": {"name": "mnist", "namespace": "vision", "labels": labels},
            "spec": {"jobInstances": 2, "ipusPerJobInstance": ipus},
        })
    };
    let cases = [
        (job(json!({"team": "vision"}), "8"), json!([])),
        (
            job(json!({"team": "vision"}), "16"),
            json!([{"field": "spec.ipusPerJobInstance", "message": "requests 32 IPUs"}]),
        ),
        (
            job(json!({}), "8"),
            json!([{"field": "metadata.labels", "message": "set the label team"}]),
        ),
    ];
    let cases = cases.map(|(job, violations)| {
        json!({
            "settings": settings,
            "request": request(&job, None),
            "expect": {"violations": violations},
        })
    });
    pass(&cases);
}

/// The settings of an IPUPolicy.
fn settings_of(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    let policy: Value = serde_saphyr::from_str(&text).unwrap();
    policy["spec"]["settings"].clone()
}
