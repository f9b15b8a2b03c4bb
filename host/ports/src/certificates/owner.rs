//! Pure: the patch that makes the Namespace of the release an owner of a webhook configuration.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

/// Returns the JSON patch that makes the Namespace with this name and UID an owner. `None` if nothing changes.
///
/// The patch removes an owner of the same name with another UID, for which the garbage collector would delete the
/// configuration. Other owners stay. The patch tests the resourceVersion, so that it fails after a concurrent write.
pub fn patch(seen: &ObjectMeta, namespace: &str, uid: &str) -> Option<Value> {
    let owners = seen.owner_references.as_deref().unwrap_or_default();
    let is_of_name = |owner: &OwnerReference| {
        owner.api_version == "v1" && owner.kind == "Namespace" && owner.name == namespace
    };
    let mut of_name = owners.iter().filter(|owner| is_of_name(owner));
    if let (Some(owner), None) = (of_name.next(), of_name.next())
        && owner.uid == uid
    {
        return None;
    }
    let mut wanted: Vec<OwnerReference> = owners.to_vec();
    wanted.retain(|owner| !is_of_name(owner));
    wanted.push(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        name: namespace.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    });
    Some(json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": seen.resource_version },
        { "op": "add", "path": "/metadata/ownerReferences", "value": wanted },
    ]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(kind: &str, name: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    }

    fn owned_by(owners: &[OwnerReference]) -> ObjectMeta {
        ObjectMeta {
            resource_version: Some("7".to_owned()),
            owner_references: (!owners.is_empty()).then(|| owners.to_vec()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn the_namespace_becomes_an_owner_beside_the_others() {
        let ours = owner("Namespace", "ipu", "new");
        let former = owner("Namespace", "ipu", "old");
        let other = owner("Node", "ipu", "1");
        let cases = [
            (vec![], vec![&ours]),
            (vec![other.clone()], vec![&other, &ours]),
            (vec![former.clone(), other.clone()], vec![&other, &ours]),
            (vec![former, ours.clone()], vec![&ours]),
        ];
        for (before, after) in cases {
            let patch = patch(&owned_by(&before), "ipu", "new").unwrap();
            assert_eq!(
                patch[0],
                json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" })
            );
            assert_eq!(patch[1]["path"], "/metadata/ownerReferences");
            assert_eq!(patch[1]["value"], json!(after), "{before:?}");
        }
        for owners in [vec![ours.clone()], vec![other, ours]] {
            assert_eq!(patch(&owned_by(&owners), "ipu", "new"), None);
        }
    }
}
