//! Workloads whose quantities were written by a typed client, as Kueue is one.

use serde_json::{Value, json};

use super::{held, running, step, suspended};
use crate::job::QueuedJob;
use crate::plan::Step;
use crate::samples::{admit, job, workload};

/// A job whose first container has these resources.
fn with_resources(resources: &Value) -> QueuedJob {
    job(|job| {
        job["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"] =
            resources.clone();
    })
}

/// The Workload of a job after Kueue has written it with these resources.
fn rewritten(
    job: &QueuedJob,
    resources: Value,
    change: fn(&mut Value),
) -> crate::objects::Workload {
    workload(job, |workload| {
        let container = &mut workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0];
        container["resources"] = resources;
        change(workload);
    })
}

#[test]
fn a_rewritten_workload_is_that_of_its_job() {
    let written = json!({"requests": {"cpu": "0.5", "memory": "2048Mi", "a/b": "1e3"}, "limits": {"memory": 4_294_967_296_u64}});
    let job = with_resources(&written);
    let canonical = json!({
        "requests": {"cpu": "500m", "memory": "2Gi", "a/b": "1e3", "graphcore.ai/ipu": "4"},
        "limits": {"memory": "4294967296", "graphcore.ai/ipu": "4"},
    });
    assert_eq!(
        step(
            job.clone(),
            rewritten(&job, canonical.clone(), |_| {}),
            vec![]
        ),
        None
    );
    let start = step(job.clone(), rewritten(&job, canonical, admit), vec![]);
    assert!(matches!(start, Some(Step::Start(_))), "{start:?}");
    let less = json!({"requests": {"cpu": "499m", "memory": "2Gi", "a/b": "1k"}, "limits": {"memory": "4Gi"}});
    assert_eq!(
        step(job.clone(), rewritten(&job, less, |_| {}), vec![]),
        Some(Step::SetPodSets)
    );
}

#[test]
fn a_rewrite_stops_no_running_job() {
    let is_same = |workload: &mut Value| {
        admit(workload);
        workload["status"]["conditions"].as_array_mut().unwrap().push(json!({
            "type": "PodsReady", "status": "True", "reason": "Started", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }));
    };
    let resources = json!({
        "requests": {"cpu": "1000m", "graphcore.ai/ipu": "4"}, "limits": {"graphcore.ai/ipu": "4"}, "claims": null,
    });
    assert_eq!(
        step(
            running(),
            rewritten(&suspended(), resources, is_same),
            held()
        ),
        None
    );
}

#[test]
fn fields_that_are_empty_are_missing() {
    let printed = job(|job| {
        let spec = &mut job["spec"]["workers"]["template"]["spec"];
        spec["priorityClassName"] = json!("");
        spec["tolerations"] =
            json!([{"key": "a", "operator": "Exists", "value": "", "effect": ""}]);
        spec["affinity"] =
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}});
    });
    let typed = workload(&printed, |workload| {
        let spec = &mut workload["spec"]["podSets"][0]["template"]["spec"];
        spec.as_object_mut().unwrap().remove("priorityClassName");
        spec["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
        spec["affinity"] = json!({"nodeAffinity": {}});
    });
    assert_eq!(step(printed, typed, vec![]), None);
}

#[test]
fn the_launcher_of_a_running_job_keeps_its_resources() {
    let parallel = |change: fn(&mut Value)| {
        job(|job| {
            job["spec"]["jobInstances"] = json!(1);
            job["spec"]["launcher"] = json!({"command": ["mpirun"]});
            change(job);
        })
    };
    let waiting = parallel(|_| {});
    // An earlier setting of the admin.
    let earlier = |admit: fn(&mut Value)| {
        workload(&waiting, |workload| {
            let launcher = &mut workload["spec"]["podSets"][0];
            assert_eq!(launcher["name"], "launcher");
            launcher["template"]["spec"]["containers"][0]["resources"] =
                json!({"requests": {"cpu": "3"}});
            admit(workload);
        })
    };
    assert_eq!(
        step(waiting.clone(), earlier(|_| {}), vec![]),
        Some(Step::SetPodSets)
    );
    let stop = step(parallel(super::start), earlier(admit), held());
    assert_eq!(stop, None);
}
