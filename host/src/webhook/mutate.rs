//! Pure: the answer of the mutating webhook. The host trusts a defaulting policy with nothing but
//! spec, labels and annotations, and on an update not with what the user left alone.
//!
//! The finalizer is the controller's to add, as with the original: set here, every `kubectl apply`
//! would print the API server's warning about a finalizer without a path.

use json_patch::{PatchOperation, diff};
use serde_json::Value;

use super::answer::Decision;
use super::request::AdmissionRequest;

/// Where the Pod template stands: what is added to it makes Pods anew.
const TEMPLATE: &str = "/spec/workers/template";

/// Why the host does not pass on what a defaulting policy answered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverreachError {
    /// It changed something that is not its own.
    #[error(
        "it changes {path}; a defaulting policy may change spec, metadata.labels and \
         metadata.annotations, and nothing else"
    )]
    NotItsOwn {
        /// JSON pointer of the change.
        path: String,
    },
    /// On an update, it changed what was there before.
    #[error(
        "on an update it changes {path}, which was set before and which the update leaves alone; \
         a running training must not be rolled by a changed default"
    )]
    SetBefore {
        /// JSON pointer of the change.
        path: String,
    },
}

/// The changes that turn the object that the user sent into the one with all defaults.
pub fn decision(sent: &Value, defaulted: &Value) -> Decision {
    let patch = diff(sent, defaulted);
    if patch.0.is_empty() {
        Decision::Allowed
    } else {
        Decision::Patched(patch)
    }
}

/// Checks what one defaulting policy made of the object that it was given (`before`).
pub fn checked(
    request: &AdmissionRequest,
    before: &Value,
    defaulted: &Value,
) -> Result<(), OverreachError> {
    let patch = diff(before, defaulted);
    if let Some(operation) = patch.iter().find(|operation| !is_its_own(operation)) {
        return Err(OverreachError::NotItsOwn {
            path: match operation.path().to_string() {
                root if root.is_empty() => "the whole object".to_owned(),
                path => path,
            },
        });
    }
    if let Some(old) = &request.old_object {
        let specs = |object: &Value| object.get("spec").cloned().unwrap_or_default();
        let (old, object, new) = (specs(old), specs(before), specs(defaulted));
        if let Some(path) = overwritten("/spec", &old, &object, &new) {
            return Err(OverreachError::SetBefore { path });
        }
    }
    Ok(())
}

fn is_its_own(operation: &PatchOperation) -> bool {
    let mut tokens = operation.path().tokens();
    let first = tokens.next().map(|token| token.decoded().into_owned());
    let second = tokens.next().map(|token| token.decoded().into_owned());
    match (first.as_deref(), second.as_deref()) {
        (Some("spec"), _) | (Some("metadata"), Some("labels" | "annotations")) => true,
        (_, _) => false,
    }
}

/// The first place where `new` differs from `object` although `object` is there as it was in
/// `old`. Something added to a map that was there before is no such place, except in the Pod
/// template.
fn overwritten(path: &str, old: &Value, object: &Value, new: &Value) -> Option<String> {
    if object == new {
        return None;
    }
    let untouched = old == object;
    match (old, object, new) {
        (Value::Object(old), Value::Object(object), Value::Object(new)) => {
            if untouched && path.starts_with(TEMPLATE) {
                return Some(path.to_owned());
            }
            object.iter().find_map(|(key, value)| {
                let new = new.get(key).unwrap_or(&Value::Null);
                overwritten(&format!("{path}/{key}"), old.get(key)?, value, new)
            })
        }
        (Value::Array(old), Value::Array(object), Value::Array(new)) if !untouched => old
            .iter()
            .zip(object)
            .enumerate()
            .find_map(|(at, (old, object))| {
                let new = new.get(at).unwrap_or(&Value::Null);
                overwritten(&format!("{path}/{at}"), old, object, new)
            }),
        // What was null was not set.
        (_, Value::Null, _) => None,
        _ => untouched.then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{OverreachError, checked, decision};
    use crate::webhook::answer::Decision;
    use crate::webhook::request::AdmissionRequest;
    use crate::webhook::request::tests::{request, updating};

    fn defaulted(request: &AdmissionRequest, change: impl FnOnce(&mut Value)) -> Value {
        let mut object = request.object.clone();
        change(&mut object);
        object
    }

    /// The object that the API server makes of the request and our patch.
    fn patched(request: &AdmissionRequest, change: impl FnOnce(&mut Value)) -> Value {
        let defaulted = defaulted(request, change);
        checked(request, &request.object, &defaulted).unwrap();
        let mut object = request.object.clone();
        if let Decision::Patched(patch) = decision(&request.object, &defaulted) {
            json_patch::patch(&mut object, &patch).unwrap();
        }
        object
    }

    #[test]
    fn defaults_arrive() {
        let object = patched(&request(|_| {}), |object| {
            object["spec"]["cleanPodPolicy"] = json!("None");
            object["metadata"]["labels"] = json!({ "team": "vision" });
        });
        assert_eq!(object["spec"]["cleanPodPolicy"], json!("None"));
        assert_eq!(object["metadata"]["labels"]["team"], json!("vision"));
    }

    #[test]
    fn nothing_but_spec_labels_and_annotations_may_change() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 6] = [
            (|o| o["metadata"]["name"] = json!("other"), "/metadata/name"),
            (
                |o| o["metadata"]["finalizers"] = json!(["x/y"]),
                "/metadata/finalizers",
            ),
            (|o| o["metadata"] = json!("gone"), "/metadata"),
            (|o| o["status"] = json!({}), "/status"),
            (|o| o["kind"] = json!("Pod"), "/kind"),
            (|o| *o = json!(null), "the whole object"),
        ];
        let request = request(|_| {});
        for (change, path) in cases {
            assert_eq!(
                checked(&request, &request.object, &defaulted(&request, change)),
                Err(OverreachError::NotItsOwn {
                    path: path.to_owned()
                })
            );
        }
    }

    fn update() -> AdmissionRequest {
        request(|request| {
            request["object"]["spec"] = json!({
                "jobInstances": 1,
                "ipusPerJobInstance": "2",
                "restartPolicy": { "type": "Never" },
                "launcher": { "command": ["mpirun", "-np", "2"] },
                "workers": { "template": { "spec": { "containers": [{ "name": "a" }] } } },
            });
            updating(|old| {
                old["spec"]["jobInstances"] = json!(4);
                old["spec"]["launcher"]["command"] = json!(["mpirun", "-np", "4"]);
            })(request);
        })
    }

    #[test]
    fn an_update_may_get_defaults_where_nothing_was_set_or_the_user_changed_something() {
        type Change = fn(&mut Value);
        let cases: [Change; 4] = [
            |o| o["spec"]["cleanPodPolicy"] = json!("None"),
            |o| o["spec"]["restartPolicy"]["backOffLimit"] = json!(3),
            |o| o["spec"]["jobInstances"] = json!(2),
            |o| o["spec"]["launcher"]["command"][2] = json!("8"),
        ];
        for change in cases {
            let update = update();
            assert!(checked(&update, &update.object, &defaulted(&update, change)).is_ok());
        }
    }

    #[test]
    fn an_update_never_changes_what_was_set_and_left_alone() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 7] = [
            (
                |o| o["spec"]["ipusPerJobInstance"] = json!("4"),
                "/spec/ipusPerJobInstance",
            ),
            (
                |o| o["spec"]["restartPolicy"]["type"] = json!("Always"),
                "/spec/restartPolicy/type",
            ),
            (
                |o| o["spec"]["restartPolicy"] = json!(null),
                "/spec/restartPolicy",
            ),
            (
                |o| o["spec"]["launcher"]["command"][0] = json!("poprun"),
                "/spec/launcher/command/0",
            ),
            (
                |o| {
                    let spec = o["spec"].as_object_mut().unwrap();
                    spec.remove("ipusPerJobInstance");
                },
                "/spec/ipusPerJobInstance",
            ),
            (
                |o| {
                    let pod = &mut o["spec"]["workers"]["template"]["spec"];
                    pod["containers"] = json!([{ "name": "a" }, { "name": "sidecar" }]);
                },
                "/spec/workers/template",
            ),
            (
                |o| o["spec"]["workers"]["template"]["spec"]["hostIPC"] = json!(true),
                "/spec/workers/template",
            ),
        ];
        for (change, path) in cases {
            let update = update();
            assert_eq!(
                checked(&update, &update.object, &defaulted(&update, change)),
                Err(OverreachError::SetBefore {
                    path: path.to_owned()
                })
            );
        }
    }

    #[test]
    fn overreach_names_the_place() {
        let request = request(|_| {});
        let reached = defaulted(&request, |object| object["status"] = json!({}));
        let error = checked(&request, &request.object, &reached).unwrap_err();
        assert!(error.to_string().contains("/status"), "{error}");
    }

    #[test]
    fn no_change_is_no_patch() {
        let request = request(|_| {});
        let same = request.object.clone();
        assert_eq!(decision(&request.object, &same), Decision::Allowed);
    }

    #[test]
    fn on_an_update_a_second_policy_may_change_what_the_first_one_set_and_nothing_of_the_users() {
        let update = request(updating(|_| {}));
        let first = defaulted(&update, |object| {
            object["spec"]["cleanPodPolicy"] = json!("All");
        });
        let mut second = first.clone();
        second["spec"]["cleanPodPolicy"] = json!("None");
        assert_eq!(checked(&update, &first, &second), Ok(()));
        second["spec"]["jobInstances"] = json!(7);
        assert!(checked(&update, &first, &second).is_err());
    }
}
