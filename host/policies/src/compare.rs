//! Pure: how the answer of a tried guest compares with the one that counts, told without what users
//! wrote.

use std::ops::ControlFlow;

use ipu_guest_host::model::{Decision, Verdict};
use ipu_runtime::json_difference::{self, Change, Path};
use ipu_text::sanitize;
use serde_json::Value;

use super::meter::Compared;

/// Differences of two objects that one sample names.
const PATHS: usize = 8;

/// Longest difference that is shown, in bytes: its path may hold any key.
const DIFFERENCE: usize = 512;

/// Longest word of an answer that is shown, in bytes.
const WORD: usize = 64;

/// Parts of a path below which users write what is theirs: programs, secrets, notes.
const THEIRS: [&str; 5] = ["env", "command", "args", "annotations", "lifecycle"];

/// What two defaulting guests made of one object; none where one refused it.
pub fn defaulted(counts: Option<&Value>, tried: Option<&Value>) -> Compared {
    let said = |one: Option<&Value>| if one.is_some() { "admitted" } else { "refused" };
    match (counts, tried) {
        (Some(counts), Some(tried)) => objects(counts, tried),
        (None, None) => Compared::Equal,
        _ => Compared::Different(format!(
            "the request was {}; it would have been {}",
            said(counts),
            said(tried)
        )),
    }
}

fn objects(counts: &Value, tried: &Value) -> Compared {
    let (mut told, mut more) = (Vec::new(), 0_usize);
    let _ = json_difference::each(counts, tried, |path, change| {
        if told.len() < PATHS {
            told.push(shown_change(path, change));
        } else {
            more += 1;
        }
        ControlFlow::Continue(())
    });
    if told.is_empty() {
        return Compared::Equal;
    }
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    Compared::Different(format!("it would have {}", told.join(", ")))
}

/// Two verdicts: what matters is whether they refuse, and which fields they speak of.
pub fn verdicts(counts: &Verdict, tried: &Verdict) -> Compared {
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
    let (counts, tried) = (fields(counts), fields(tried));
    if counts == tried {
        return Compared::Equal;
    }
    let said = |fields: Vec<String>| match fields.as_slice() {
        [] => "admitted".to_owned(),
        fields => format!("refused for {}", fields.join(", ")),
    };
    let (counts, tried) = (said(counts), said(tried));
    Compared::Different(format!(
        "the request was {counts}; it would have been {tried}"
    ))
}

/// Two decisions on one partition: what matters is what happens next, and where.
pub fn decisions(counts: &Decision, tried: &Decision) -> Compared {
    let said = |decision: &Decision| match decision {
        Decision::Try(controller) => format!("made on {}", word(controller)),
        Decision::Wait(_) => "left to wait".to_owned(),
        Decision::Reject(_) => "rejected".to_owned(),
    };
    let (counts, tried) = (said(counts), said(tried));
    if counts == tried {
        return Compared::Equal;
    }
    Compared::Different(format!(
        "the partition was {counts}; it would have been {tried}"
    ))
}

fn shown_change(path: &Path<'_>, change: Change<'_>) -> String {
    let change = match change {
        Change::Set(value) => format!("set {path} to {}", shown(path, value)),
        Change::Removed => format!("left out {path}"),
    };
    sanitize(&change, DIFFERENCE)
}

/// A value, where it is one of ours: a number, a yes or no, or a word.
fn shown(path: &Path<'_>, value: &Value) -> String {
    if path.has_any(&THEIRS) {
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
    use serde_json::json;

    use super::*;
    use ipu_guest_host::model::Violation;

    fn different(compared: Compared) -> String {
        match compared {
            Compared::Different(sample) => sample,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn objects_are_told_by_the_places_where_they_differ_and_what_is_the_users_stays_with_them() {
        let counts = json!({"spec": {"a": 1, "b": true, "env": [{"value": "secret-1"}]}});
        assert_eq!(objects(&counts, &counts.clone()), Compared::Equal);
        let tried = json!({"spec": {"a": 2, "c": "x", "env": [{"value": "secret-2"}]}});
        let sample = different(objects(&counts, &tried));
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
    fn a_difference_in_many_places_below_a_long_key_is_told_without_repeating_the_key() {
        let object = |number| json!({"spec": {"k".repeat(1 << 20): vec![number; 100_000]}});
        let sample = different(objects(&object(1), &object(2)));
        assert!(sample.len() < (PATHS + 1) * DIFFERENCE, "{}", sample.len());
        assert!(sample.ends_with("and 99992 more"), "{sample}");
    }

    #[test]
    fn a_refusal_equals_a_refusal_and_nothing_else() {
        let object = json!({});
        assert_eq!(defaulted(None, None), Compared::Equal);
        assert_eq!(defaulted(Some(&object), Some(&object)), Compared::Equal);
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
    fn verdicts_are_told_by_their_fields() {
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
            Compared::Equal
        );
        assert_eq!(
            different(verdicts(&verdict(&[]), &both)),
            "the request was admitted; it would have been refused for spec.a, spec.b"
        );
    }

    #[test]
    fn decisions_are_told_by_where_they_lead() {
        let made = |on: &str| Decision::Try(on.to_owned());
        assert_eq!(decisions(&made("a:1"), &made("a:1")), Compared::Equal);
        assert_eq!(
            decisions(&Decision::Wait(vec![]), &Decision::Wait(vec![])),
            Compared::Equal
        );
        assert_eq!(
            different(decisions(&made("a:1"), &Decision::Reject("no".to_owned()))),
            "the partition was made on a:1; it would have been rejected"
        );
    }
}
