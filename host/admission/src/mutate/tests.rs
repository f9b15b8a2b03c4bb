//! The changes that a defaulting guest may make.

use serde_json::{Value, json};

use super::new_job::completed;
use super::{OverreachError, check, decision};
use crate::answer::Decision;
use crate::request::AdmissionRequest;
use crate::request::tests::{request, updating};

fn defaulted(request: &AdmissionRequest, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = request.object.clone();
    change(&mut object);
    object
}

/// The object that the API server makes of the request and our patch.
fn patched(request: &AdmissionRequest, change: impl FnOnce(&mut Value)) -> Value {
    let defaulted = defaulted(request, change);
    check(request, &request.object, &defaulted).unwrap();
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
            check(&request, &request.object, &defaulted(&request, change)),
            Err(OverreachError::ForbiddenPath(path.to_owned()))
        );
    }
}

#[test]
fn a_new_job_has_the_finalizer_unless_another_controller_carries_it_out() {
    type Change = fn(&mut Value);
    const OURS: &str = "graphcore.ai/finalizer";
    let cases: [(Change, Value); 5] = [
        (|_| {}, json!([OURS])),
        (
            |o| o["metadata"]["finalizers"] = json!(["x/y"]),
            json!(["x/y", OURS]),
        ),
        (
            |o| o["metadata"]["finalizers"] = json!([OURS]),
            json!([OURS]),
        ),
        (
            |o| o["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue"),
            Value::Null,
        ),
        (
            |o| o["spec"]["managedBy"] = json!("graphcore.ai/ipu-operator"),
            json!([OURS]),
        ),
    ];
    for (change, expected) in cases {
        let request = request(|request| change(&mut request["object"]));
        let mut object = request.object.clone();
        match completed(&request, &object, Decision::Allowed, false) {
            Decision::Patched(patch) => json_patch::patch(&mut object, &patch).unwrap(),
            decision => assert_eq!(decision, Decision::Allowed),
        }
        assert_eq!(object["metadata"]["finalizers"], expected);
    }
    let update = request(|request| updating(|_| {})(request));
    let decision = completed(&update, &update.object, Decision::Allowed, true);
    assert_eq!(
        decision,
        Decision::Allowed,
        "the controller has set it long before"
    );
}

#[test]
fn a_new_job_with_a_queue_is_suspended_where_kueue_is_installed() {
    let queued = |change: fn(&mut Value)| {
        let request = request(|request| {
            request["object"]["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "team"});
            change(&mut request["object"]);
        });
        let defaulted = |is_kueue_served| {
            let mut object = request.object.clone();
            let decision = completed(&request, &object, Decision::Allowed, is_kueue_served);
            if let Decision::Patched(patch) = decision {
                json_patch::patch(&mut object, &patch).unwrap();
            }
            object["spec"].clone()
        };
        assert_eq!(defaulted(false), request.object["spec"], "without Kueue");
        defaulted(true)
    };
    let single = queued(|job| drop(job["spec"].as_object_mut().unwrap().remove("launcher")));
    assert_eq!(
        (&single["suspend"], &single["cleanPodPolicy"]),
        (&json!(true), &Value::Null)
    );
    let parallel = queued(|job| job["spec"]["launcher"] = json!({"command": ["mpirun"]}));
    assert_eq!(parallel["cleanPodPolicy"], "Workers");
    let chosen = queued(|job| {
        job["spec"]["launcher"] = json!({"command": ["mpirun"]});
        job["spec"]["cleanPodPolicy"] = json!("None");
    });
    assert_eq!(chosen["cleanPodPolicy"], "None");
    let elsewhere = queued(|job| job["spec"]["managedBy"] = json!("example.com/other"));
    assert_eq!(elsewhere["suspend"], Value::Null);
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
        assert!(check(&update, &update.object, &defaulted(&update, change)).is_ok());
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
            check(&update, &update.object, &defaulted(&update, change)),
            Err(OverreachError::SetBefore(path.to_owned()))
        );
    }
}

#[test]
fn overreach_names_the_place() {
    let request = request(|_| {});
    let reached = defaulted(&request, |object| object["status"] = json!({}));
    let error = check(&request, &request.object, &reached).unwrap_err();
    assert!(error.to_string().contains("/status"), "{error}");
}

#[test]
fn a_made_up_key_of_a_guest_is_reported_cut_and_plain() {
    let update = update();
    let key = format!("\u{1b}[31m\u{202e}{}", "x".repeat(1 << 20));
    let beside = defaulted(&update, |object| object[&key] = json!(1));
    let within = defaulted(&update, |object| {
        object["metadata"][&key] = json!(1);
    });
    for reached in [beside, within] {
        let error = check(&update, &update.object, &reached).unwrap_err();
        let message = error.to_string();
        assert!(message.len() < 1_000, "{}", message.len());
        assert!(message.chars().all(ipu_text::is_plain), "{message}");
    }
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
    assert_eq!(check(&update, &first, &second), Ok(()));
    second["spec"]["jobInstances"] = json!(7);
    assert!(check(&update, &first, &second).is_err());
}
