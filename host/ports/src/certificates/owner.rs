//! Pure: the patch that makes the Namespace of the release an owner of a webhook configuration,
//! unless Argo CD applies the configuration.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

/// The field manager with which Argo CD applies objects, on the server and on the client.
const ARGO_CD: &str = "argocd-controller";

/// Annotation by which Argo CD recognizes the objects of an Application. Another tracking method
/// does without it.
const ARGO_CD_TRACKING: &str = "argocd.argoproj.io/tracking-id";

/// Returns the JSON patch that makes the Namespace with this name and UID an owner. `None` if
/// nothing changes.
///
/// The patch removes an owner of the same name with another UID, for which the garbage collector
/// would delete the configuration. Other owners stay. The patch tests the resourceVersion, so that
/// it fails after a concurrent write.
///
/// Argo CD does not delete objects with an owner together with their Application. A configuration
/// that Argo CD applies therefore loses this owner, because it would otherwise outlive the release
/// and refuse requests.
pub fn patch(seen: &ObjectMeta, namespace: &str, uid: &str) -> Option<Value> {
    let owners = seen.owner_references.as_deref().unwrap_or_default();
    let is_of_name = |owner: &OwnerReference| {
        owner.api_version == "v1" && owner.kind == "Namespace" && owner.name == namespace
    };
    let of_name: Vec<&OwnerReference> = owners.iter().filter(|owner| is_of_name(owner)).collect();
    let wanted = (!is_applied_by_argo_cd(seen)).then(|| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        name: namespace.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    });
    let is_right = match (&of_name[..], &wanted) {
        ([], None) => true,
        ([owner], Some(wanted)) => owner.uid == wanted.uid,
        _ => false,
    };
    if is_right {
        return None;
    }
    let others = owners.iter().filter(|owner| !is_of_name(owner)).cloned();
    let owners: Vec<OwnerReference> = others.chain(wanted).collect();
    Some(json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": seen.resource_version },
        { "op": "add", "path": "/metadata/ownerReferences", "value": owners },
    ]))
}

/// Reports whether Argo CD has applied this object.
pub fn is_applied_by_argo_cd(seen: &ObjectMeta) -> bool {
    let mut managers = seen.managed_fields.iter().flatten();
    let has_manager = managers.any(|entry| entry.manager.as_deref() == Some(ARGO_CD));
    let mut annotations = seen.annotations.iter().flatten();
    has_manager || annotations.any(|(key, _)| key == ARGO_CD_TRACKING)
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

    #[test]
    fn a_configuration_that_argo_cd_applies_is_not_owned_by_the_namespace() {
        let ours = owner("Namespace", "ipu", "new");
        let other = owner("Node", "ipu", "1");
        let managed = json!([{ "manager": "helm" }, { "manager": "argocd-controller" }]);
        let managers = [
            json!({ "managedFields": managed }),
            json!({ "annotations": { "argocd.argoproj.io/tracking-id": "ipus:/Kind:/ipu" } }),
        ];
        for manager in managers {
            let seen = |owners: &[OwnerReference]| {
                let mut meta: ObjectMeta = serde_json::from_value(manager.clone()).unwrap();
                meta.owner_references = Some(owners.to_vec());
                meta
            };
            let patch = |owners: &[OwnerReference]| patch(&seen(owners), "ipu", "new");
            assert_eq!(patch(&[]), None, "{manager}");
            assert_eq!(patch(std::slice::from_ref(&other)), None, "{manager}");
            let removed = patch(&[ours.clone(), other.clone()]).unwrap();
            assert_eq!(removed[1]["value"], json!([other]), "{manager}");
        }
    }
}
