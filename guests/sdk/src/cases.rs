//! Pure: inputs for tests, and the comparison of answers with a table of cases in JSON. A case has
//! a violation as a pair of the field and a part of the message, and a warning as a part of it.

use serde_json::Value;

use crate::placer::Controller;
use crate::types::Violation;

/// Longest warning that the contract allows, in bytes.
const WARNING_MAX: usize = 255;

/// Returns a reachable controller, whose nodes are labelled `vipu=<name>`, and whose free IPUs are
/// all together.
pub fn controller(name: &str, total_ipus: u32, used_ipus: u32) -> Controller {
    Controller {
        name: name.to_owned(),
        label_key: "vipu".to_owned(),
        label_value: name.to_owned(),
        has_nodes: true,
        unreachable: None,
        unschedulable: None,
        total_ipus,
        used_ipus,
        largest_free: total_ipus - used_ipus,
        free_blocks: Vec::new(),
        failures: 0,
    }
}

/// Returns an object with a change, which is a JSON merge patch.
pub fn merged(object: &Value, change: &Value) -> Value {
    let mut merged = object.clone();
    json_patch::merge(&mut merged, change);
    merged
}

/// Asserts that the violations are those of the case.
///
/// # Panics
///
/// If they are not, or if the case has no list of violations.
#[track_caller]
pub fn assert_violations(case: &Value, found: &[Violation]) {
    let name = &case["name"];
    let expected = entries(case, "violations");
    assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
    for (violation, expected) in found.iter().zip(expected) {
        assert_eq!(violation.field, expected[0], "{name}: {found:?}");
        assert_part(name, &violation.message, &expected[1]);
    }
}

/// Asserts that the warnings are those of the case, and short enough.
///
/// # Panics
///
/// If they are not, or if the case has no list of warnings.
#[track_caller]
pub fn assert_warnings(case: &Value, found: &[String]) {
    let name = &case["name"];
    let expected = entries(case, "warnings");
    assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
    for (warning, expected) in found.iter().zip(expected) {
        assert_part(name, warning, expected);
        assert!(warning.len() <= WARNING_MAX, "{name}: {warning}");
    }
}

#[track_caller]
fn assert_part(name: &Value, text: &str, part: &Value) {
    let part = part.as_str().expect("a case has parts of texts");
    assert!(text.contains(part), "{name}: {text}");
}

fn entries<'a>(case: &'a Value, key: &str) -> &'a [Value] {
    case[key].as_array().expect("a case has a list of them")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_replaces_adds_and_removes() {
        let object = json!({"a": 1, "b": {"c": 2, "d": 3}});
        let change = json!({"a": null, "b": {"c": 4}, "e": 5});
        let expected = json!({"b": {"c": 4, "d": 3}, "e": 5});
        assert_eq!(merged(&object, &change), expected);
    }

    #[test]
    fn each_difference_from_a_case_fails() {
        let violation = |field: &str, message: &str| Violation {
            field: field.to_owned(),
            message: message.to_owned(),
        };
        let case = json!({"name": "one", "violations": [["spec", "wrong"]], "warnings": ["old"]});
        assert_violations(&case, &[violation("spec", "is wrong; correct it")]);
        assert_warnings(&case, &["spec.a is old".to_owned()]);
        for found in [
            Vec::new(),
            vec![violation("spec.a", "is wrong")],
            vec![violation("spec", "is right")],
        ] {
            let failed = catch_unwind(|| assert_violations(&case, &found)).is_err();
            assert!(failed, "{found:?}");
        }
        for found in [Vec::new(), vec!["new".to_owned()], vec!["old".repeat(86)]] {
            let failed = catch_unwind(|| assert_warnings(&case, &found)).is_err();
            assert!(failed, "{found:?}");
        }
    }
}
