//! Changes of a job that its Workload follows.

use serde_json::{Value, json};

use super::{held, step, suspended, with};
use crate::plan::Step;
use crate::samples::{admit, job, reserve};

#[test]
fn a_workload_follows_its_job() {
    let moved = job(|job| job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("other"));
    assert_eq!(step(moved, with(|_| {}), vec![]), Some(Step::SetQueue));
    let urgent =
        job(|job| job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high"));
    assert_eq!(step(urgent, with(|_| {}), vec![]), Some(Step::SetPriority));
    let of_class = |hold: fn(&mut Value)| {
        with(move |workload| {
            workload["spec"]["priorityClassRef"] =
                json!({"kind": "WorkloadPriorityClass", "name": "high"});
            hold(workload);
        })
    };
    assert_eq!(
        step(suspended(), of_class(|_| {}), vec![]),
        Some(Step::SetPriority)
    );
    assert_eq!(
        step(suspended(), of_class(reserve), vec![]),
        None,
        "its label was removed later"
    );
    let limited = || {
        job(|job| job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("60"))
    };
    assert_eq!(
        step(limited(), with(|_| {}), vec![]),
        Some(Step::SetTimeLimit)
    );
    assert_eq!(step(limited(), with(reserve), vec![]), None);
    let larger = |suspend: bool| {
        job(|job| {
            job["spec"]["jobInstances"] = json!(3);
            job["spec"]["suspend"] = json!(suspend);
        })
    };
    assert_eq!(
        step(larger(true), with(|_| {}), vec![]),
        Some(Step::SetPodSets)
    );
    assert!(matches!(
        step(larger(false), with(admit), held()),
        Some(Step::Stop(_))
    ));
    assert_eq!(
        step(larger(true), with(admit), vec![]),
        Some(Step::DeleteWorkload)
    );
}
