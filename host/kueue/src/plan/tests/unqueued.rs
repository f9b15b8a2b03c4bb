//! Jobs whose label was removed, or whose spec became unreadable.

use serde_json::{Value, json};

use super::{held, start, with};
use crate::job::QueuedJob;
use crate::objects::Workload;
use crate::partitions::JobPartition;
use crate::plan::{Step, plan};
use crate::samples::{admit, condition, job_object, now, observed_job, reserve};

/// The job without its label, with one change.
fn left(change: impl FnOnce(&mut Value)) -> QueuedJob {
    let job = job_object(|job| {
        job["metadata"]["labels"] = json!({"team": "a"});
        change(job);
    });
    QueuedJob::unqueued(&job).unwrap()
}

fn step(job: QueuedJob, workload: Workload, partitions: Vec<JobPartition>) -> Option<Step> {
    plan(&observed_job(job, [workload], partitions), now()).step
}

fn reserving(job: &mut Value) {
    job["status"]["admission"] =
        json!({"podSets": [{"name": "worker"}], "reservePartitions": true});
}

fn running(job: &mut Value) {
    start(job);
    job["status"]["launcherStatus"] = json!("Running");
    job["status"]["conditions"] = json!([{"type": "Running", "status": "True"}]);
}

fn deleted(change: fn(&mut Value)) -> Workload {
    with(|workload| {
        change(workload);
        workload["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:50Z");
    })
}

#[test]
fn a_waiting_job_deletes_its_workload() {
    for hold in [|_: &mut Value| {}, reserve, admit] {
        assert_eq!(
            step(left(|_| {}), with(hold), vec![]),
            Some(Step::DeleteWorkload)
        );
        assert_eq!(
            step(left(|_| {}), with(hold), held()),
            None,
            "its partitions go first"
        );
        assert_eq!(
            step(left(|_| {}), deleted(hold), vec![]),
            Some(Step::RemoveFinalizer)
        );
    }
    let described = left(|job| {
        job["status"]["conditions"] = json!([{"type": "QuotaReserved", "status": "False"}]);
    });
    assert_eq!(
        step(described, with(|_| {}), vec![]),
        Some(Step::RemoveCondition)
    );
}

#[test]
fn a_reserving_job_gives_its_partitions_back_before_its_quota() {
    let stop = step(left(reserving), with(reserve), held());
    assert!(matches!(stop, Some(Step::Stop(_))), "{stop:?}");
    assert_eq!(step(left(|_| {}), with(reserve), held()), None);
    assert_eq!(
        step(left(|_| {}), with(reserve), vec![]),
        Some(Step::DeleteWorkload)
    );
    let unsettled = left(|job| job["status"]["observedGeneration"] = json!(2));
    assert_eq!(
        step(unsettled, with(reserve), vec![]),
        None,
        "its controller may create one"
    );
}

#[test]
fn an_admitted_job_keeps_its_quota_to_its_end() {
    let mirrored = |change: fn(&mut Value)| {
        with(move |workload| {
            admit(workload);
            condition(workload, "PodsReady", "True", "Started");
            change(workload);
        })
    };
    assert_eq!(step(left(running), mirrored(|_| {}), held()), None);
    let larger = left(|job| {
        running(job);
        job["spec"]["jobInstances"] = json!(3);
    });
    assert_eq!(
        step(larger, mirrored(|_| {}), held()),
        None,
        "its admission limits it"
    );
    let ready = step(left(running), with(admit), held());
    assert!(
        matches!(ready, Some(Step::SetPodsReady { is_ready: true, .. })),
        "{ready:?}"
    );
    let evicted = mirrored(|workload| condition(workload, "Evicted", "True", "Preempted"));
    for lost in [evicted, deleted(admit), with(reserve)] {
        let stop = step(left(running), lost, held());
        assert!(matches!(stop, Some(Step::Stop(_))), "{stop:?}");
    }
    let ended = || {
        left(|job| {
            start(job);
            job["status"]["completionTime"] = json!("2026-01-01T00:00:30Z");
            job["status"]["conditions"] = json!([{"type": "Succeeded", "status": "True"}]);
        })
    };
    assert_eq!(step(ended(), mirrored(|_| {}), held()), None);
    let finish = step(ended(), mirrored(|_| {}), vec![]);
    assert!(
        matches!(
            finish,
            Some(Step::Finish {
                reason: "Succeeded",
                ..
            })
        ),
        "{finish:?}"
    );
    let finished = mirrored(|workload| condition(workload, "Finished", "True", "Succeeded"));
    assert_eq!(step(ended(), finished, vec![]), Some(Step::RemoveFinalizer));
}

#[test]
fn a_job_that_is_resumed_outside_keeps_its_partitions() {
    let outside = || {
        left(|job| {
            job["spec"]["suspend"] = json!(false);
            job["status"]["launcherStatus"] = json!("Running");
        })
    };
    assert_eq!(
        step(outside(), with(reserve), held()),
        Some(Step::DiscardWorkload)
    );
    assert_eq!(
        step(outside(), deleted(reserve), held()),
        Some(Step::RemoveFinalizer)
    );
}

#[test]
fn an_unreadable_job_is_in_no_queue() {
    let broken = |change: fn(&mut Value)| {
        let job = job_object(|job| {
            change(job);
            job["spec"]["ipusPerJobInstance"] = json!("three");
            job["status"]["launcherStatus"] = json!("Failed");
        });
        assert!(QueuedJob::of(&job, &crate::samples::settings()).is_none());
        QueuedJob::unqueued(&job).unwrap()
    };
    assert_eq!(
        step(broken(|_| {}), with(|_| {}), vec![]),
        Some(Step::DeleteWorkload)
    );
    let stop = step(broken(reserving), with(reserve), held());
    assert!(matches!(stop, Some(Step::Stop(_))), "{stop:?}");
    let finish = step(
        broken(|job| {
            running(job);
            job["status"]["completionTime"] = json!("2026-01-01T00:00:30Z");
            job["status"]["conditions"] = json!([{"type": "Failed", "status": "True"}]);
        }),
        with(admit),
        vec![],
    );
    assert!(matches!(finish, Some(Step::Finish { .. })), "{finish:?}");
}

#[test]
fn only_living_jobs_of_the_operator_leave_a_queue() {
    let unqueued = |change: fn(&mut Value)| QueuedJob::unqueued(&job_object(change)).is_some();
    assert!(!unqueued(|_| {}), "it is in its queue");
    assert!(unqueued(
        |job| job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("")
    ));
    assert!(!unqueued(
        |job| job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:50Z")
    ));
    assert!(!unqueued(
        |job| job["spec"]["managedBy"] = json!("example.com/other")
    ));
}
