//! Pure: the patch that makes the defaulted object of the one that was sent, no larger than it need be for the API server.

use std::ops::ControlFlow;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, diff};
use serde_json::Value;

use ipu_runtime::json_difference;

/// Most bytes that operations may take beside their values. Each repeats its whole path, and a guest may change many
/// places below a long key.
const OPERATIONS: usize = 1 << 20;

/// What an operation takes beside its path and its value, in bytes.
const OPERATION: usize = 256;

/// What a defaulting policy may change.
const ITS_OWN: [&[&str]; 3] = [
    &["spec"],
    &["metadata", "labels"],
    &["metadata", "annotations"],
];

/// The changes from one object to the other, which differ in nothing but what a defaulting policy may change. Where they
/// differ in too many places to name each, each of the maps is replaced as a whole.
pub fn between(sent: &Value, defaulted: &Value) -> Patch {
    if is_small(sent, defaulted) {
        diff(sent, defaulted)
    } else {
        Patch(
            ITS_OWN
                .iter()
                .filter_map(|path| whole(path, sent, defaulted))
                .collect(),
        )
    }
}

fn is_small(sent: &Value, defaulted: &Value) -> bool {
    let mut left = OPERATIONS;
    let named = json_difference::each(sent, defaulted, |path, _| {
        match left.checked_sub(OPERATION + path.bytes()) {
            Some(rest) => {
                left = rest;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    });
    named.is_continue()
}

fn whole(path: &[&str], sent: &Value, defaulted: &Value) -> Option<PatchOperation> {
    let path = PointerBuf::from_tokens(path.iter().copied());
    let (before, after) = (path.resolve(sent).ok(), path.resolve(defaulted).ok());
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

    fn applied(sent: &Value, defaulted: &Value) -> Patch {
        let (patch, mut object) = (between(sent, defaulted), sent.clone());
        json_patch::patch(&mut object, &patch).unwrap();
        assert!(object == *defaulted);
        patch
    }

    #[test]
    fn a_few_changes_are_named_one_by_one() {
        let sent = json!({"metadata": {"name": "a"}, "spec": {"a": 1}});
        let defaulted = json!({"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"a": 2}});
        assert_eq!(
            json!(applied(&sent, &defaulted)),
            json!([
                {"op": "add", "path": "/metadata/labels", "value": {"b": "c"}},
                {"op": "replace", "path": "/spec/a", "value": 2},
            ])
        );
    }

    #[test]
    fn many_changes_below_a_long_key_do_not_repeat_it() {
        let (key, many) = (64 << 10, 1_000);
        let sent = json!({
            "metadata": {"name": "a", "annotations": {"gone": "x"}},
            "spec": below(key, many, 1),
        });
        let defaulted = json!({
            "metadata": {"name": "a", "labels": below(key, many, 3)},
            "spec": below(key, many, 2),
        });
        let patch = applied(&sent, &defaulted);
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
