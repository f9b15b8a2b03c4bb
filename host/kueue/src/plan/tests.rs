//! The next step of a queued job in each state of the job and of its Workload.

mod changes;
mod checks;
mod quantities;
mod starts;
mod unqueued;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Plan, Step, plan};
use crate::build::started;
use crate::job::QueuedJob;
use crate::mirror::{self, Due};
use crate::objects::Workload;
use crate::partitions::JobPartition;
use crate::samples::{
    admit, condition, job, now, observed_job, partition, ready, reserve, workload,
};

fn step(
    job: QueuedJob,
    workload: impl Into<Option<Workload>>,
    partitions: Vec<JobPartition>,
) -> Option<Step> {
    planned(job, workload, partitions).step
}

fn planned(
    job: QueuedJob,
    workload: impl Into<Option<Workload>>,
    partitions: Vec<JobPartition>,
) -> Plan {
    plan(&observed_job(job, workload.into(), partitions), now())
}

fn suspended() -> QueuedJob {
    job(|_| {})
}

fn running() -> QueuedJob {
    job(|job| {
        start(job);
        job["status"]["launcherStatus"] = json!("Running");
        job["status"]["conditions"] = json!([{"type": "Running", "status": "True"}]);
    })
}

/// Kueue has admitted a job, and it was started.
fn start(job: &mut Value) {
    job["spec"]["suspend"] = json!(false);
    job["status"]["admission"] = json!({"podSets": [{"name": "worker"}]});
}

fn ended() -> QueuedJob {
    job(|job| {
        start(job);
        job["status"]["completionTime"] = json!("2026-01-01T00:00:30Z");
        job["status"]["lastMessage"] = json!("All instances done");
        job["status"]["conditions"] = json!([{"type": "Succeeded", "status": "True"}]);
    })
}

fn with(change: impl FnOnce(&mut Value)) -> Workload {
    workload(&suspended(), change)
}

fn held() -> Vec<JobPartition> {
    vec![partition(0, &ready())]
}

#[test]
fn a_suspended_job_gets_its_workload_once_nothing_of_an_earlier_run_is_left() {
    assert_eq!(step(suspended(), None, vec![]), Some(Step::CreateWorkload));
    assert_eq!(step(suspended(), None, held()), None);
    assert!(matches!(step(running(), None, vec![]), Some(Step::Stop(_))));
    assert_eq!(step(ended(), None, vec![]), None);
    let prebuilt = job(|job| {
        job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("given");
    });
    assert_eq!(step(prebuilt, None, vec![]), None);
}

/// A job that runs without an admission: an earlier version of the operator has started it.
fn unadmitted(change: impl FnOnce(&mut Value)) -> QueuedJob {
    job(|job| {
        start(job);
        job["status"]["launcherStatus"] = json!("Running");
        job["status"]["admission"] = json!(null);
        change(job);
    })
}

#[test]
fn a_job_that_ran_before_it_was_in_a_queue_runs_to_its_end() {
    assert_eq!(step(unadmitted(|_| {}), None, held()), None);
    let Due::Now(conditions) = mirror::outside(&unadmitted(|_| {}), now()) else {
        panic!("its condition says so");
    };
    let said = conditions.last().unwrap();
    assert_eq!((&*said.type_, &*said.status), ("QuotaReserved", "False"));
    let mirrored = unadmitted(|job| job["status"]["conditions"] = json!(conditions));
    assert_eq!(mirror::outside(&mirrored, now()), Due::Never);
    // A user has resumed a job that Kueue has not admitted, or that it has stopped; or a job got
    // the label while it waited for its partitions.
    let resumed: [fn(&mut Value); 3] = [
        |job| job["status"]["launcherStatus"] = json!("Pending"),
        |job| job["status"]["launcherStatus"] = json!("Suspended"),
        |job| job["status"] = json!(null),
    ];
    for change in resumed {
        let stop = step(unadmitted(change), None, held());
        assert!(matches!(stop, Some(Step::Stop(_))), "{stop:?}");
    }
}

#[test]
fn a_job_whose_admission_was_dropped_gets_it_again_or_is_stopped() {
    let start = step(unadmitted(|_| {}), with(admit), held());
    assert!(matches!(start, Some(Step::Start(_))), "{start:?}");
    let evicted = with(|workload| {
        admit(workload);
        condition(workload, "Evicted", "True", "Preempted");
    });
    for workload in [evicted, with(|_| {}), with(reserve)] {
        let stop = step(unadmitted(|_| {}), workload, held());
        assert!(matches!(stop, Some(Step::Stop(_))), "{stop:?}");
    }
}

#[test]
fn a_job_starts_when_it_is_admitted_on_the_nodes_of_its_flavors() {
    assert_eq!(step(suspended(), with(|_| {}), vec![]), None);
    assert_eq!(step(suspended(), with(reserve), vec![]), None);
    let Some(Step::Start(updates)) = step(suspended(), with(admit), vec![]) else {
        panic!("it is admitted");
    };
    let worker = &updates[0];
    assert_eq!((&*worker.name, worker.count), ("worker", Some(2)));
    assert_eq!(
        worker.node_selector,
        BTreeMap::from([("pool".to_owned(), "a".to_owned())])
    );
    assert_eq!(
        worker.tolerations.len(),
        1,
        "one for the flavor of both resources"
    );
    assert_eq!(worker.labels["kueue.x-k8s.io/podset"], "worker");
    assert!(matches!(
        step(running(), with(|_| {}), held()),
        Some(Step::Stop(_))
    ));
}

#[test]
fn a_job_that_a_user_resumes_is_stopped_or_gets_the_admission_that_it_lacks() {
    let resumed = || job(|job| job["spec"]["suspend"] = json!(false));
    for workload in [with(|_| {}), with(reserve)] {
        let stop = step(resumed(), workload, vec![]);
        assert!(matches!(stop, Some(Step::Stop(_))), "{stop:?}");
    }
    let start = step(resumed(), with(admit), vec![]);
    assert!(matches!(start, Some(Step::Start(_))), "{start:?}");
    // The rest of an interrupted stop or start.
    let granted = job(|job| job["status"]["admission"] = json!({}));
    let stop = step(granted, with(|_| {}), vec![]);
    assert!(matches!(stop, Some(Step::Stop(_))), "{stop:?}");
    // A status without the fields of the job's controller is invalid.
    let unobserved = job(|job| job["status"] = json!(null));
    assert_eq!(step(unobserved, with(admit), vec![]), None);
}

#[test]
fn an_admission_keeps_the_partitions_that_a_check_waited_for() {
    let Some(Step::Start(updates)) = step(suspended(), with(admit), vec![]) else {
        panic!("it is admitted");
    };
    let reserving = job(|job| {
        job["status"]["admission"] = json!({"podSets": updates, "reservePartitions": true});
    });
    for (job, is_reserving) in [(suspended(), false), (reserving, true)] {
        let admission = started(&job, &updates);
        assert_eq!(admission.reserve_partitions, is_reserving);
        assert_eq!(admission.pod_sets, updates);
    }
}

#[test]
fn an_unknown_flavor_delays_the_start() {
    let unknown = with(|workload| {
        admit(workload);
        workload["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = json!("new");
    });
    assert_eq!(step(suspended(), unknown, vec![]), None);
}

#[test]
fn an_evicted_job_releases_quota_when_its_partitions_are_gone() {
    let evicted = || {
        with(|workload| {
            admit(workload);
            condition(workload, "Evicted", "True", "Preempted");
        })
    };
    let stop = Step::Stop("Evicted Preempted".to_owned());
    assert_eq!(step(running(), evicted(), held()), Some(stop));
    assert_eq!(step(suspended(), evicted(), held()), None);
    let unsettled = job(|job| job["status"]["observedGeneration"] = json!(2));
    assert_eq!(
        step(unsettled, evicted(), vec![]),
        None,
        "its controller may create one"
    );
    assert_eq!(
        step(suspended(), evicted(), vec![]),
        Some(Step::ReleaseQuota { is_retry: false })
    );
}

#[test]
fn the_end_of_a_job_is_reported_when_its_partitions_are_gone() {
    assert_eq!(step(ended(), with(admit), held()), None);
    let finish = Step::Finish {
        reason: "Succeeded",
        message: "All instances done".to_owned(),
    };
    assert_eq!(step(ended(), with(admit), vec![]), Some(finish));
    let finished = with(|workload| condition(workload, "Finished", "True", "Succeeded"));
    assert_eq!(
        step(ended(), finished.clone(), vec![]),
        Some(Step::RemoveFinalizer)
    );
    let mut done = finished;
    done.metadata.finalizers = None;
    assert_eq!(step(ended(), done, vec![]), None);
}

#[test]
fn a_deleted_workload_goes_after_its_job_has_stopped() {
    let deleted = || {
        with(|workload| {
            admit(workload);
            workload["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:50Z");
        })
    };
    assert!(matches!(
        step(running(), deleted(), held()),
        Some(Step::Stop(_))
    ));
    assert_eq!(step(suspended(), deleted(), held()), None);
    assert_eq!(
        step(suspended(), deleted(), vec![]),
        Some(Step::RemoveFinalizer)
    );
}

#[test]
fn a_smaller_job_gives_the_quota_of_its_former_instances_back() {
    let smaller = || {
        job(|job| {
            job["spec"]["jobInstances"] = json!(1);
            start(job);
        })
    };
    let both = vec![partition(0, &ready()), partition(1, &ready())];
    assert_eq!(
        step(smaller(), with(admit), both),
        None,
        "its partition is there"
    );
    let Some(Step::SetReclaimable(pods)) = step(smaller(), with(admit), held()) else {
        panic!("the second partition is gone");
    };
    assert_eq!((&*pods[0].name, pods[0].count), ("worker", 1));
    let mirrored = with(|workload| {
        admit(workload);
        workload["status"]["reclaimablePods"] = json!([{"name": "worker", "count": 1}]);
    });
    assert_eq!(step(smaller(), mirrored, held()), None);
}

#[test]
fn ready_pods_and_their_loss_are_reported() {
    let ready = |status: &'static str, reason: &'static str| {
        with(move |workload| {
            admit(workload);
            condition(workload, "PodsReady", status, reason);
        })
    };
    let mirrored = |is_ready, reason| Some(Step::SetPodsReady { is_ready, reason });
    assert_eq!(
        step(running(), with(admit), held()),
        mirrored(true, "Started")
    );
    assert_eq!(step(running(), ready("True", "Started"), held()), None);
    let starting = || job(start);
    let lost = step(starting(), ready("True", "Started"), held());
    assert_eq!(lost, mirrored(false, "WaitForRecovery"));
    let again = step(running(), ready("False", "WaitForRecovery"), held());
    assert_eq!(again, mirrored(true, "Recovered"));
}

#[test]
fn a_job_that_runs_elsewhere_has_nothing_to_wait_for() {
    let elsewhere = job(|job| {
        job["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
        job["status"] = json!(null);
    });
    let evicted = with(|workload| {
        admit(workload);
        condition(workload, "Evicted", "True", "Deactivated");
    });
    assert_eq!(
        step(elsewhere, evicted, vec![]),
        Some(Step::ReleaseQuota { is_retry: false })
    );
}

#[test]
fn a_prebuilt_workload_is_adopted_or_refused() {
    let prebuilt = || {
        job(|job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("given");
        })
    };
    let given = |count: u32| {
        with(move |workload| {
            workload["metadata"]["name"] = json!("given");
            workload["metadata"]["ownerReferences"] = json!(null);
            workload["spec"]["podSets"][0]["count"] = json!(count);
        })
    };
    assert_eq!(
        step(prebuilt(), given(2), vec![]),
        Some(Step::AdoptWorkload)
    );
    let mut owned = given(5);
    owned.metadata.owner_references = workload(&suspended(), |_| {}).metadata.owner_references;
    let refused = step(prebuilt(), owned, vec![]);
    assert!(
        matches!(
            refused,
            Some(Step::Finish {
                reason: "OutOfSync",
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn of_two_workloads_the_one_that_fits_stays() {
    let (fits, other) = (
        workload(&suspended(), |_| {}),
        workload(&suspended(), |workload| {
            workload["metadata"]["name"] = json!("old");
            workload["spec"]["podSets"][0]["count"] = json!(7);
        }),
    );
    let plan = plan(&observed_job(suspended(), [other, fits], vec![]), now());
    assert_eq!(plan.step, Some(Step::DeleteWorkload));
    assert_eq!(plan.workload.unwrap().metadata.name.as_deref(), Some("old"));
}
