//! Pure: the patch from the original to the defaulted object, within a size limit.

use std::ops::ControlFlow;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, diff};
use serde_json::Value;

use ipu_runtime::json_difference;

/// Size limit of all operations without their values, in bytes. Each operation repeats its path,
/// and a guest can change many places below a long key.
const OPERATIONS_LIMIT: usize = 1 << 20;

/// Size of an operation without its path and its value, in bytes.
const OPERATION_SIZE: usize = 256;

/// The paths that a defaulting guest may change.
const ALLOWED_PATHS: [&[&str]; 3] = [
    &["spec"],
    &["metadata", "labels"],
    &["metadata", "annotations"],
];

/// Returns the changes between two objects that differ only in the allowed paths. If there are too
/// many changes, each changed path is replaced as a whole.
pub fn between(original: &Value, defaulted: &Value) -> Patch {
    if is_small(original, defaulted) {
        diff(original, defaulted)
    } else {
        Patch(
            ALLOWED_PATHS
                .iter()
                .filter_map(|path| replace_path(path, original, defaulted))
                .collect(),
        )
    }
}

fn is_small(original: &Value, defaulted: &Value) -> bool {
    let mut left = OPERATIONS_LIMIT;
    let listed = json_difference::each(original, defaulted, |path, _| {
        match left.checked_sub(OPERATION_SIZE + path.bytes()) {
            Some(rest) => {
                left = rest;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    });
    listed.is_continue()
}

fn replace_path(path: &[&str], original: &Value, defaulted: &Value) -> Option<PatchOperation> {
    let path = PointerBuf::from_tokens(path.iter().copied());
    let (before, after) = (path.resolve(original).ok(), path.resolve(defaulted).ok());
    if before == after {
        return None;
    }
    Some(match (before, after.cloned()) {
        (None, Some(value)) => PatchOperation::Add(AddOperation { path, value }),
        (Some(_), Some(value)) => PatchOperation::Replace(ReplaceOperation { path, value }),
        (_, None) => PatchOperation::Remove(RemoveOperation { path }),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As many numbers below a key of this length.
    fn below(key: usize, many: usize, number: usize) -> Value {
        json!({"k".repeat(key): vec![number; many]})
    }

    fn applied(original: &Value, defaulted: &Value) -> Patch {
        let (patch, mut object) = (between(original, defaulted), original.clone());
        json_patch::patch(&mut object, &patch).unwrap();
        assert!(object == *defaulted);
        patch
    }

    #[test]
    fn a_few_changes_are_named_one_by_one() {
        let original = json!({"metadata": {"name": "a"}, "spec": {"a": 1}});
        let defaulted = json!({"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"a": 2}});
        assert_eq!(
            json!(applied(&original, &defaulted)),
            json!([
                {"op": "add", "path": "/metadata/labels", "value": {"b": "c"}},
                {"op": "replace", "path": "/spec/a", "value": 2},
            ])
        );
    }

    #[test]
    fn many_changes_below_a_long_key_do_not_repeat_it() {
        let (key, many) = (64 << 10, 1_000);
        let original = json!({
            "metadata": {"name": "a", "annotations": {"gone": "x"}},
            "spec": below(key, many, 1),
        });
        let defaulted = json!({
            "metadata": {"name": "a", "labels": below(key, many, 3)},
            "spec": below(key, many, 2),
        });
        let patch = applied(&original, &defaulted);
        assert_eq!(patch.len(), 3);
        let (text, object) = (json!(patch).to_string(), defaulted.to_string());
        assert!(text.len() < 2 * object.len(), "{}", text.len());
    }

    #[test]
    fn many_changes_below_short_keys_are_no_more_than_the_object() {
        let object = |number| json!({"metadata": {}, "spec": {"a": vec![number; 100_000]}});
        assert_eq!(applied(&object(1), &object(2)).len(), 1);
    }
}
