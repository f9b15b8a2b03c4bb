//! Pure: which violations an object had before its update. A rule that is newer than an object must
//! not keep its users from labelling, shrinking or mending it, so these do not deny the update,
//! unless it starts more of the job.

use std::mem;

use ipu_api::guest::admission::Violation;
use serde_json::Value;

use super::request::AdmissionRequest;

/// Returns the same request as if it changed nothing: what guests report on it was there before.
/// `None`: nothing was there, or every rule counts, because the update starts a job or makes it
/// larger.
pub fn unchanged(request: &AdmissionRequest) -> Option<AdmissionRequest> {
    let old = request.old_object.as_ref()?;
    if starts(&request.object["spec"], &old["spec"]) {
        return None;
    }
    Some(request.about(old.clone(), Some(old.clone())))
}

/// Takes those violations out that `earlier` has too, where the update leaves the value as it was.
/// Returns them.
pub fn forgive(
    violations: &mut Vec<Violation>,
    earlier: &[Violation],
    request: &AdmissionRequest,
) -> Vec<Violation> {
    let old = request.old_object.as_ref().unwrap_or(&Value::Null);
    let is_older = |violation: &Violation| {
        earlier.contains(violation) && !has_changed(&violation.field, &request.object, old)
    };
    let all = mem::take(violations);
    let (older, caused) = all.into_iter().partition(is_older);
    *violations = caused;
    older
}

/// The warning about a violation that does not deny the update.
pub fn warning(older: &Violation) -> String {
    format!(
        "{}: {} (the object was so before, and this update is not denied for it)",
        older.field, older.message
    )
}

/// Whether a change starts a job, or more of it: it is resumed, gets more instances, or another
/// size.
fn starts(spec: &Value, old: &Value) -> bool {
    let is_suspended = |spec: &Value| spec["suspend"] == Value::Bool(true);
    let grows = match (spec["jobInstances"].as_i64(), old["jobInstances"].as_i64()) {
        (Some(new), Some(old)) => new > old,
        _ => spec["jobInstances"] != old["jobInstances"],
    };
    let is_resized = ["ipusPerJobInstance", "workersPerJobInstance"]
        .iter()
        .any(|size| spec[size] != old[size]);
    (is_suspended(old) && !is_suspended(spec)) || grows || is_resized
}

/// Whether the value at the field of a violation has changed. The text is a guest's. Of a text that
/// names no single field, the part before counts. A map of labels or annotations contains keys that
/// no rule is about.
fn has_changed(field: &str, object: &Value, old: &Value) -> bool {
    let (mut new, mut old) = (Some(object), Some(old));
    for segment in segments(field) {
        if segment == "*" {
            break;
        }
        (new, old) = (member(new, segment), member(old, segment));
    }
    let is_map = new.is_some_and(Value::is_object);
    new != old && !(is_map && field.starts_with("metadata"))
}

/// The parts of a path such as `spec.containers[0].image` or `metadata.labels[a.b/c]`.
fn segments(field: &str) -> impl Iterator<Item = &str> {
    let mut rest = field;
    std::iter::from_fn(move || {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if rest.is_empty() {
            return None;
        }
        let (segment, after) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        rest = after;
        Some(segment.trim_matches(['"', '\'']))
    })
}

fn member<'a>(value: Option<&'a Value>, segment: &str) -> Option<&'a Value> {
    match value? {
        Value::Object(map) => map.get(segment),
        Value::Array(list) => list.get(segment.parse::<usize>().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::tests::{request, updating};

    fn violation(field: &str) -> Violation {
        Violation {
            field: field.to_owned(),
            message: "is not allowed".to_owned(),
        }
    }

    #[test]
    fn only_an_update_that_starts_nothing_has_an_earlier_state() {
        let has_state = |change: fn(&mut Value)| unchanged(&request(updating(change))).is_some();
        assert_eq!(unchanged(&request(|_| {})), None);
        assert!(has_state(
            |old| old["metadata"]["labels"] = json!({"a": "b"})
        ));
        assert!(has_state(|old| old["spec"]["jobInstances"] = json!(2)));
        assert!(!has_state(|old| old["spec"]["jobInstances"] = json!(0)));
        assert!(!has_state(|old| old["spec"]["jobInstances"] = json!(null)));
        assert!(!has_state(|old| old["spec"]["suspend"] = json!(true)));
        assert!(!has_state(
            |old| old["spec"]["ipusPerJobInstance"] = json!("1")
        ));
        let state = unchanged(&request(updating(|old| {
            old["metadata"] = json!({"name": "m"});
        })));
        let state = state.unwrap();
        assert_eq!(state.object["metadata"], json!({"name": "m"}));
        assert_eq!(state.old_object, Some(state.object));
        assert_eq!(state.user.name, "jane");
    }

    #[test]
    fn a_violation_is_forgiven_where_the_value_stays() {
        let containers = |image: &str| json!([{"name": "main", "image": image}, {"image": "b"}]);
        let updated = request(|review| {
            review["object"]["metadata"]["labels"] = json!({"a.b/c": "1", "new": "x"});
            review["object"]["spec"]["containers"] = containers("changed");
            updating(|old| {
                old["metadata"]["labels"] = json!({"a.b/c": "1"});
                old["spec"]["containers"] = containers("a");
            })(review);
        });
        for (field, is_forgiven) in [
            ("spec.ipusPerJobInstance", true),
            ("spec.containers[1].image", true),
            ("spec.containers[0].image", false),
            ("spec.containers[*].image", false),
            ("spec.containers", false),
            ("spec", false),
            ("spec.nodeSelector[pool]", true),
            ("metadata.labels", true),
            ("metadata.labels[a.b/c]", true),
            ("metadata.labels[\"team\"]", true),
            ("metadata.labels['new']", false),
            ("metadata.labels[new", false),
        ] {
            let mut violations = vec![violation(field)];
            let older = forgive(&mut violations, &[violation(field)], &updated);
            assert_eq!(
                (older.len(), violations.len()),
                if is_forgiven { (1, 0) } else { (0, 1) },
                "{field}"
            );
        }
        let mut other = vec![violation("spec.ipusPerJobInstance")];
        assert_eq!(
            forgive(&mut other, &[violation("spec.suspend")], &updated),
            []
        );
        assert_eq!(other.len(), 1);
    }
}
