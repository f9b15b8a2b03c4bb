//! The defaults, case by case; the same table runs through the component.

use guest_sdk::cases::assert_warnings;

use super::*;

const TABLE: &str = include_str!("cases.json");

#[test]
fn what_was_left_open_is_filled_and_the_rest_stays() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    for case in table.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let answer = apply(json!({"metadata": {"name": "mnist"}, "spec": case["spec"]}));
        if let Some(refusal) = case["refused"].as_str() {
            let text = answer.unwrap_err().to_string();
            assert!(text.contains(refusal), "{name}: {text}");
            continue;
        }
        let answer = answer.unwrap();
        assert_eq!(answer.object["spec"], case["expected"], "{name}");
        assert_eq!(
            answer.object["metadata"],
            json!({"name": "mnist"}),
            "{name}"
        );
        assert_warnings(case, &answer.warnings);
    }
}

#[test]
fn a_second_time_changes_nothing() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    for case in table.as_array().unwrap() {
        if let Ok(once) = apply(json!({"spec": case["spec"]})) {
            let twice = apply(once.object.clone()).unwrap();
            assert_eq!(once.object, twice.object, "{}", case["name"]);
        }
    }
}

#[test]
fn what_is_no_job_comes_back_unchanged() {
    for other in [json!(null), json!([1]), json!("text"), json!({"spec": []})] {
        assert_eq!(apply(other.clone()).unwrap().object, other);
    }
}
