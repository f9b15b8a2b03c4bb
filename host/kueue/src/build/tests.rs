//! The patches of the status of a job.

use ipu_api::ipujob_status::IPUJobStatus;
use serde_json::{Value, json};

use super::*;
use crate::samples::{job, job_object};

#[test]
fn a_status_that_a_patch_begins_has_the_fields_that_the_crd_requires() {
    let patches: [fn(&QueuedJob) -> Value; 3] = [
        |job| admission(job, &reserved(&[])),
        stopped,
        |job| job_status(job, json!({"conditions": []})),
    ];
    for patch in patches {
        let unobserved = job(|job| job["status"] = json!(null));
        let begun = patch(&unobserved)["status"].clone();
        let status: IPUJobStatus = serde_json::from_value(begun.clone()).unwrap();
        assert_eq!((status.desired_replicas, &*status.last_message), (2, ""));
        // Those of its controller stay.
        let observed = patch(&job(|_| {}));
        assert_eq!(observed["metadata"]["resourceVersion"], "7");
        let fields = observed["status"].as_object().unwrap();
        let is_kept = ["desiredReplicas", "lastMessage"].map(|key| !fields.contains_key(key));
        assert_eq!(is_kept, [true, true], "{fields:?}");
        assert_eq!(begun.as_object().unwrap().len(), fields.len() + 2);
    }
}

#[test]
fn a_stopped_job_is_suspended_at_once() {
    let running = |job: &mut Value| {
        job["spec"]["suspend"] = json!(false);
        job["status"]["launcherStatus"] = json!("Running");
    };
    let before = job(running);
    assert!(before.runs_unadmitted());
    let after = job(|job| {
        running(job);
        job["status"]["launcherStatus"] = stopped(&before)["status"]["launcherStatus"].clone();
    });
    assert!(!after.runs_unadmitted());
}

#[test]
fn the_status_of_a_stopped_job_keeps_its_conditions() {
    // `ipu-jobs` counts the time until the stop by its conditions.
    let patch = stopped(&job(|_| {}));
    let fields = json!({"admission": null, "launcherStatus": "Suspended"});
    assert_eq!(patch["status"], fields);
}

#[test]
fn an_admission_that_the_api_server_has_dropped_is_noticed() {
    let granted = job_object(|job| {
        let patch = admission(&crate::samples::job(|_| {}), &reserved(&[]));
        job["status"]["admission"] = patch["status"]["admission"].clone();
    });
    assert!(has_admission(&granted));
    let dropped: [fn(&mut Value); 3] = [
        |_| {},
        |job| job["status"]["admission"] = json!(null),
        |job| job["status"] = json!(null),
    ];
    for change in dropped {
        assert!(!has_admission(&job_object(change)));
    }
}
