//! Pure: validates the owner metadata of a request, which placement policies see.

use std::collections::BTreeMap;

use ipu_api::dns1123::{is_label_key, is_label_value, is_subdomain};
use ipu_api::ipupartition::OwnerMetadata;
use ipu_api::owner_metadata::{ANNOTATION_MAX, PAIRS_MAX};

use super::problem::{Fault, shown};

/// The faults of owner metadata.
pub(super) fn faults(metadata: &OwnerMetadata) -> Vec<Fault> {
    let mut faults = Vec::from_iter(number("ownerMetadata.labels", &metadata.labels));
    faults.extend(number("ownerMetadata.annotations", &metadata.annotations));
    for (key, value) in metadata.labels.iter().take(PAIRS_MAX) {
        faults.extend(key_fault("ownerMetadata.labels", key));
        if !is_label_value(value) {
            let rule = "empty, or at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends";
            faults.push(Fault::new(&field("ownerMetadata.labels", key), value, rule));
        }
    }
    for (key, value) in metadata.annotations.iter().take(PAIRS_MAX) {
        faults.extend(key_fault("ownerMetadata.annotations", key));
        let length = key.len() + value.len();
        if length > ANNOTATION_MAX {
            let rule = format!("at most {ANNOTATION_MAX} bytes long, key and value together");
            let found = format!("{length} bytes long");
            faults.push(Fault::new(
                &field("ownerMetadata.annotations", key),
                &found,
                &rule,
            ));
        }
    }
    let class = metadata.priority_class_name.as_deref();
    if let Some(class) = class.filter(|class| !is_subdomain(class)) {
        let rule = "the name of a PriorityClass: a DNS subdomain of at most 253 characters";
        faults.push(Fault::new("ownerMetadata.priorityClassName", class, rule));
    }
    faults
}

fn number(of: &str, pairs: &BTreeMap<String, String>) -> Option<Fault> {
    let rule = format!("at most {PAIRS_MAX} pairs");
    let found = format!("{} pairs", pairs.len());
    (pairs.len() > PAIRS_MAX).then(|| Fault::new(of, &found, &rule))
}

fn key_fault(of: &str, key: &str) -> Option<Fault> {
    let rule = "named by a key of Kubernetes: at most 63 letters, digits, `-`, `_` and `.`, with a letter or \
                digit at both ends; before it may stand a DNS subdomain and `/`";
    (!is_label_key(key)).then(|| Fault::new(&field(of, key), key, rule))
}

fn field(of: &str, key: &str) -> String {
    format!("{of}.{}", shown(key))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fields(metadata: Value) -> Vec<String> {
        let metadata: OwnerMetadata = serde_json::from_value(metadata).unwrap();
        let faults = faults(&metadata).into_iter();
        faults.map(|fault| fault.field).collect()
    }

    fn pairs(count: usize) -> Value {
        (0..count).map(|n| (format!("k{n}"), json!(""))).collect()
    }

    #[test]
    fn valid_metadata_of_an_owner_is_accepted() {
        let metadata = json!({
            "labels": {"team": "vision", "example.com/Cost_Centre.1": "", "a": "x".repeat(63)},
            "annotations": {"example.com/deadline": "any text: {}", "n": "x".repeat(ANNOTATION_MAX - 1)},
            "priorityClassName": "urgent",
        });
        assert_eq!(fields(metadata), Vec::<String>::new());
        let most = json!({"labels": pairs(PAIRS_MAX), "annotations": pairs(PAIRS_MAX)});
        assert_eq!(fields(most), Vec::<String>::new());
    }

    #[test]
    fn each_part_that_breaks_a_rule_is_named() {
        let long = "x".repeat(64);
        let cases = [
            (
                json!({"labels": {"team": "-vision"}}),
                "ownerMetadata.labels.team",
            ),
            (
                json!({"labels": {"team": long}}),
                "ownerMetadata.labels.team",
            ),
            (json!({"labels": {"": "x"}}), "ownerMetadata.labels.empty"),
            (
                json!({"labels": {"a/b/c": "x"}}),
                "ownerMetadata.labels.a/b/c",
            ),
            (
                json!({"labels": {"A_b/c": "x"}}),
                "ownerMetadata.labels.A_b/c",
            ),
            (
                json!({"annotations": {"a b": "x"}}),
                "ownerMetadata.annotations.a b",
            ),
            (
                json!({"annotations": {"n": "x".repeat(ANNOTATION_MAX)}}),
                "ownerMetadata.annotations.n",
            ),
            (
                json!({"labels": pairs(PAIRS_MAX + 1)}),
                "ownerMetadata.labels",
            ),
            (
                json!({"annotations": pairs(PAIRS_MAX + 1)}),
                "ownerMetadata.annotations",
            ),
            (
                json!({"priorityClassName": ""}),
                "ownerMetadata.priorityClassName",
            ),
            (
                json!({"priorityClassName": "Urgent"}),
                "ownerMetadata.priorityClassName",
            ),
        ];
        for (metadata, field) in cases {
            assert_eq!(fields(metadata), [field]);
        }
    }
}
