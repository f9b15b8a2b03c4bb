//! Pure: which partitions the tracker of Graphcore's operator names.

use std::borrow::Cow;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;

use ipu_api::labels;

/// The ConfigMap is this operator's own summary, or a copy of it, and contains nothing of the other
/// operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnSummary;

/// The ids in a tracker. Its format is not published, so it is searched as text. Keys that this
/// operator has written do not count, because they contain names of users' jobs.
pub(super) fn ids(tracker: &ConfigMap) -> Result<BTreeSet<String>, OwnSummary> {
    let ours = our_keys(tracker);
    let mut labels = tracker.metadata.labels.iter().flatten();
    let is_marked =
        labels.any(|(key, value)| key == labels::MANAGED_BY_LABEL && value == labels::MANAGED_BY);
    if is_marked && ours.is_empty() {
        return Err(OwnSummary);
    }
    let text = tracker.data.iter().flatten();
    let text = text.map(|(key, value)| (key, Cow::from(value)));
    let bytes = tracker.binary_data.iter().flatten();
    let bytes = bytes.map(|(key, bytes)| (key, String::from_utf8_lossy(&bytes.0)));
    let mut found = BTreeSet::new();
    for (key, value) in text.chain(bytes).filter(|(key, _)| !ours.contains(*key)) {
        found.extend(ids_in(key).chain(ids_in(&value)).map(str::to_owned));
    }
    Ok(found)
}

/// The keys that this operator has written, by the managed fields of the API server.
fn our_keys(tracker: &ConfigMap) -> BTreeSet<String> {
    let managers = tracker.metadata.managed_fields.iter().flatten();
    let ours = managers.filter(|entry| entry.manager.as_deref() == Some(labels::FIELD_MANAGER));
    let fields = ours.filter_map(|entry| entry.fields_v1.as_ref());
    let data = fields.filter_map(|fields| fields.0.get("f:data")?.as_object());
    data.flat_map(|keys| keys.keys())
        .filter_map(|key| key.strip_prefix("f:"))
        .map(str::to_owned)
        .collect()
}

/// The parts of a text that may be ids of partitions.
fn ids_in(text: &str) -> impl Iterator<Item = &str> {
    let is_of_names = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    text.split(move |letter| !is_of_names(letter))
        .filter(|name| name.starts_with("p-"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(map: Value) -> Result<Vec<String>, OwnSummary> {
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        ids(&map).map(|ids| ids.into_iter().collect())
    }

    fn named(text: &str) -> Vec<String> {
        found(json!({"data": {"tracker": text}})).unwrap()
    }

    #[test]
    fn an_id_counts_where_it_is_named_as_a_whole() {
        let id = "p-mnist-default-0";
        for text in [
            id.to_owned(),
            format!("{{\"jobs\":[\"{id}\"]}}"),
            format!("default/mnist: {id}\n"),
        ] {
            assert_eq!(named(&text), [id], "{text}");
        }
        for text in [
            "",
            "p-mnist-default-01",
            "x-p-mnist-default-0",
            "p-mnist-default-0.x",
        ] {
            assert!(!named(text).contains(&id.to_owned()), "{text}");
        }
        assert_eq!(found(json!({"data": {id: ""}})), Ok(vec![id.to_owned()]));
        assert_eq!(
            found(json!({"binaryData": {"tracker": "cC1hLWItMA=="}})),
            Ok(vec!["p-a-b-0".to_owned()])
        );
    }

    #[test]
    fn what_this_operator_wrote_names_nothing() {
        let ours = "p-p-mnist-default-0-lj2j-0123456789";
        let line = "IPUJob default/p-mnist-default-0 slot 0, 4 IPUs on pod1:8090";
        let marked = json!({"app.kubernetes.io/managed-by": "ipu-operator"});
        let account = json!([{
            "manager": "ipu-operator", "operation": "Apply", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:{ours}"): {}}},
        }]);
        let both = json!({
            "metadata": {"labels": marked, "managedFields": account},
            "data": {ours: line, "tracker": "p-other-default-0"},
        });
        assert_eq!(found(both), Ok(vec!["p-other-default-0".to_owned()]));
        let copy = json!({"metadata": {"labels": marked}, "data": {ours: line}});
        assert_eq!(found(copy), Err(OwnSummary));
    }
}
