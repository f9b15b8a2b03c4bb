//! The table of verdicts and of refused settings, which also runs through the component, and the
//! limits.

use guest_sdk::cases::{assert_violations, merged};
use guest_sdk::types::Operation;
use serde_json::{Value, json};

use super::*;

const TABLE: &str = include_str!("cases.json");

fn request(object: &Value, old: Option<Value>) -> Request {
    Request {
        operation: old
            .as_ref()
            .map_or(Operation::Create, |_| Operation::Update),
        user: "jane".to_owned(),
        groups: vec!["vision".to_owned()],
        is_dry_run: false,
        sub_resource: None,
        namespace: "vision".to_owned(),
        namespace_labels: Some(vec![("tier".to_owned(), "trial".to_owned())]),
        object: object.clone(),
        old_object: old,
    }
}

fn settings(settings: &Value) -> Settings {
    Settings::parse(&settings.to_string()).unwrap()
}

fn one(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

#[test]
fn each_case_has_its_violations() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    for case in table["cases"].as_array().unwrap() {
        let old = case
            .get("old")
            .map(|change| merged(&table["valid"], change));
        let request = request(&table["valid"], old);
        let found = violations(&settings(&case["settings"]), &request);
        assert_violations(case, &found);
    }
}

#[test]
fn invalid_settings_are_refused_with_field_and_rule() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    for case in table["refused"].as_array().unwrap() {
        let json = case["settings"].to_string();
        let error = Settings::parse(&json).unwrap_err();
        let expected = case["error"].as_str().unwrap();
        assert!(error.contains(expected), "{json}: {error}");
    }
    let error = Settings::parse("{").unwrap_err();
    assert!(error.contains("the settings are not JSON"), "{error}");
}

#[test]
fn a_long_text_of_an_object_replaces_no_message() {
    let request = request(&json!({"metadata": {"name": "a".repeat(2_000)}}), None);
    let rule = json!({
        "expression": "false", "message": "no", "messageExpression": "'not ' + object.metadata.name",
    });
    let found = violations(&settings(&json!({"validations": [rule]})), &request);
    assert_eq!(found[0].message, "no");
}

#[test]
fn unknown_labels_of_the_namespace_deny_rules_about_them() {
    let mut request = request(&json!({"metadata": {}}), None);
    request.namespace_labels = None;
    let settings = settings(&json!({
        "variables": [{"name": "labels", "expression": "namespaceObject.metadata.labels"}],
        "validations": [
            {"expression": "namespaceObject.metadata.name == 'vision'"},
            {"expression": "'tier' in variables.labels"},
            {"expression": "request.namespace == 'vision'"},
        ],
    }));
    let found = violations(&settings, &request);
    assert_eq!(found.len(), 2, "{found:?}");
    for violation in found {
        let says = "the labels of namespace vision are not known yet; try again";
        assert!(violation.message.contains(says), "{violation:?}");
    }
}

#[test]
fn settings_over_a_limit_are_refused() {
    let entries = |count: usize| vec![json!({"expression": "true"}); count];
    let text = |bytes: usize| format!("'{}' == ''", "a".repeat(bytes));
    let message = json!({"validations": [{"expression": "true", "message": "a".repeat(513)}]});
    let long = vec![json!({"expression": text(2000)}); 9];
    for (settings, error) in [
        (
            json!({"validations": entries(33)}),
            "validations has 33 entries, and the limit is 32",
        ),
        (one(&text(2048)), "has 2056 bytes, and the limit is 2048"),
        (
            message,
            "validations[0].message has 513 bytes, and the limit is 512",
        ),
        (json!({"validations": long}), "the limit is 16384"),
        (one(&vec!["1"; 160].join(" + ")), "more than 150 operators"),
        (
            one(&format!("{}true", "true ? true : ".repeat(9))),
            "8 question marks",
        ),
    ] {
        let found = Settings::parse(&settings.to_string()).unwrap_err();
        assert!(found.contains(error), "{found}");
    }
    assert!(Settings::parse(&json!({"validations": entries(32)}).to_string()).is_ok());
}

#[test]
fn messages_are_short_for_any_object() {
    let object = json!({"spec": {"text": "a".repeat(100_000)}});
    for expression in [
        "object.spec.text > 1",
        "object.spec + 1 == 2",
        "object.spec.text",
    ] {
        let found = violations(&settings(&one(expression)), &request(&object, None));
        assert!(found[0].message.len() < 300, "{}", found[0].message.len());
    }
}
