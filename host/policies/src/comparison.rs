//! Pure: compares the answer of a shadow policy with the enforced one. A difference never contains
//! what users wrote.

use std::ops::ControlFlow;

use ipu_api::guest::admission::Verdict;
use ipu_api::guest::placement::Decision;
use ipu_runtime::json_difference::{self, Change, Path};
use ipu_text::sanitize;
use serde_json::Value;

use super::call_stats::Comparison;

/// Most differences in one sample.
const PATHS: usize = 8;

/// Longest difference in a sample, in bytes. Its path can contain any key.
const DIFFERENCE: usize = 512;

/// Longest word of an answer in a sample, in bytes.
const WORD: usize = 64;

/// Path segments with values of users: programs, secrets, notes.
const REDACTED_SEGMENTS: [&str; 5] = ["env", "command", "args", "annotations", "lifecycle"];

/// Compares two defaulted objects. `None`: the guest refused the object.
pub fn defaulted(enforced: Option<&Value>, shadow: Option<&Value>) -> Comparison {
    let result = |one: Option<&Value>| if one.is_some() { "admitted" } else { "refused" };
    match (enforced, shadow) {
        (Some(enforced), Some(shadow)) => objects(enforced, shadow),
        (None, None) => Comparison::Equal,
        _ => Comparison::Different(format!(
            "the request was {}; it would have been {}",
            result(enforced),
            result(shadow)
        )),
    }
}

fn objects(enforced: &Value, shadow: &Value) -> Comparison {
    let (mut differences, mut more) = (Vec::new(), 0_usize);
    let _ = json_difference::each(enforced, shadow, |path, change| {
        if differences.len() < PATHS {
            differences.push(change_text(path, change));
        } else {
            more += 1;
        }
        ControlFlow::Continue(())
    });
    if differences.is_empty() {
        return Comparison::Equal;
    }
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    Comparison::Different(format!("it would have {}", differences.join(", ")))
}

/// Compares two verdicts by the fields of their violations.
pub fn verdicts(enforced: &Verdict, shadow: &Verdict) -> Comparison {
    let fields = |verdict: &Verdict| {
        let mut fields: Vec<String> = verdict
            .violations
            .iter()
            .map(|violation| word(&violation.field))
            .collect();
        fields.sort();
        fields.dedup();
        fields
    };
    let (enforced, shadow) = (fields(enforced), fields(shadow));
    if enforced == shadow {
        return Comparison::Equal;
    }
    let result = |fields: Vec<String>| match fields.as_slice() {
        [] => "admitted".to_owned(),
        fields => format!("refused for {}", fields.join(", ")),
    };
    let (enforced, shadow) = (result(enforced), result(shadow));
    Comparison::Different(format!(
        "the request was {enforced}; it would have been {shadow}"
    ))
}

/// Compares two placement decisions by their outcome and their controller.
pub fn decisions(enforced: &Decision, shadow: &Decision) -> Comparison {
    let result = |decision: &Decision| match decision {
        Decision::Try(controller) => format!("made on {}", word(controller)),
        Decision::Wait(_) => "left to wait".to_owned(),
        Decision::Reject(_) => "rejected".to_owned(),
    };
    let (enforced, shadow) = (result(enforced), result(shadow));
    if enforced == shadow {
        return Comparison::Equal;
    }
    Comparison::Different(format!(
        "the partition was {enforced}; it would have been {shadow}"
    ))
}

fn change_text(path: &Path<'_>, change: Change<'_>) -> String {
    let change = match change {
        Change::Set(value) => format!("set {path} to {}", value_text(path, value)),
        Change::Removed => format!("left out {path}"),
    };
    sanitize(&change, DIFFERENCE)
}

/// Formats a value of the operator: a number, a truth value, or a word. A value of a user is not
/// shown.
fn value_text(path: &Path<'_>, value: &Value) -> String {
    if path.has_any(&REDACTED_SEGMENTS) {
        return "(not shown)".to_owned();
    }
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("{:?}", word(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn word(text: &str) -> String {
    sanitize(text, WORD)
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::admission::Violation;
    use serde_json::json;

    use super::*;

    fn different(compared: Comparison) -> String {
        match compared {
            Comparison::Different(sample) => sample,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_difference_of_objects_has_their_paths_and_no_value_of_users() {
        let enforced = json!({"spec": {"a": 1, "b": true, "env": [{"value": "secret-1"}]}});
        assert_eq!(objects(&enforced, &enforced.clone()), Comparison::Equal);
        let shadow = json!({"spec": {"a": 2, "c": "x", "env": [{"value": "secret-2"}]}});
        let sample = different(objects(&enforced, &shadow));
        for part in [
            "set /spec/a to 2",
            "left out /spec/b",
            "set /spec/c to \"x\"",
        ] {
            assert!(sample.contains(part), "{part}: {sample}");
        }
        assert!(!sample.contains("secret"), "{sample}");
        let many = json!({"spec": (0..100).map(|n| (n.to_string(), n)).collect::<std::collections::BTreeMap<_, _>>()});
        let sample = different(objects(&json!({"spec": {}}), &many));
        assert!(sample.ends_with("and 92 more"), "{sample}");
    }

    #[test]
    fn a_difference_below_a_long_key_stays_short() {
        let object = |number| json!({"spec": {"k".repeat(1 << 20): vec![number; 100_000]}});
        let sample = different(objects(&object(1), &object(2)));
        assert!(sample.len() < (PATHS + 1) * DIFFERENCE, "{}", sample.len());
        assert!(sample.ends_with("and 99992 more"), "{sample}");
    }

    #[test]
    fn a_refusal_equals_only_a_refusal() {
        let object = json!({});
        assert_eq!(defaulted(None, None), Comparison::Equal);
        assert_eq!(defaulted(Some(&object), Some(&object)), Comparison::Equal);
        assert_eq!(
            different(defaulted(None, Some(&object))),
            "the request was refused; it would have been admitted"
        );
        assert_eq!(
            different(defaulted(Some(&object), None)),
            "the request was admitted; it would have been refused"
        );
    }

    #[test]
    fn verdicts_differ_by_their_fields() {
        let verdict = |fields: &[&str]| Verdict {
            violations: fields
                .iter()
                .map(|field| Violation {
                    field: (*field).to_owned(),
                    message: format!("the secret of {field}"),
                })
                .collect(),
            warnings: vec![],
        };
        let both = verdict(&["spec.a", "spec.b"]);
        assert_eq!(
            verdicts(&both, &verdict(&["spec.b", "spec.a"])),
            Comparison::Equal
        );
        assert_eq!(
            different(verdicts(&verdict(&[]), &both)),
            "the request was admitted; it would have been refused for spec.a, spec.b"
        );
    }

    #[test]
    fn decisions_differ_by_their_outcome() {
        let made = |on: &str| Decision::Try(on.to_owned());
        assert_eq!(decisions(&made("a:1"), &made("a:1")), Comparison::Equal);
        assert_eq!(
            decisions(&Decision::Wait(vec![]), &Decision::Wait(vec![])),
            Comparison::Equal
        );
        assert_eq!(
            different(decisions(&made("a:1"), &Decision::Reject("no".to_owned()))),
            "the partition was made on a:1; it would have been rejected"
        );
    }
}
