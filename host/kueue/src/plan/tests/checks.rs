//! The next step of a job whose admission waits for its partitions.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Step, held, planned, step, suspended, with};
use crate::build;
use crate::check::State;
use crate::job::QueuedJob;
use crate::objects::Workload;
use crate::samples::{condition, job, now, partition, ready, reserve};

fn checked(state: &str) -> Workload {
    with(|workload| {
        reserve(workload);
        workload["status"]["admissionChecks"] = json!([
            {"name": "other", "state": "Pending", "message": ""},
            {"name": "partitions", "state": state, "message": ""},
        ]);
    })
}

fn reserving() -> QueuedJob {
    let reserve = step(suspended(), checked("Pending"), vec![]);
    let Some(Step::Reserve(updates)) = reserve else {
        panic!("its partitions are to be formed: {reserve:?}");
    };
    job(|job| {
        job["status"]["admission"] = json!({"podSets": updates, "reservePartitions": true});
    })
}

#[test]
fn a_check_of_a_job_whose_pods_are_refused_releases_the_quota() {
    let mut refused = reserving();
    refused.start_failure = Some("the API server refused Pods".to_owned());
    let Some(Step::AnswerCheck { answer, .. }) = step(refused.clone(), checked("Pending"), vec![])
    else {
        panic!("it would wait for ever");
    };
    assert_eq!(answer.state, State::Retry);
    assert_eq!(answer.message, "the API server refused Pods");
    assert_eq!(step(refused, checked("Retry"), vec![]), None);
}

#[test]
fn a_check_is_answered_by_the_partitions_of_the_suspended_job() {
    let answer = |partitions| match step(reserving(), checked("Pending"), partitions) {
        Some(Step::AnswerCheck { name, answer }) => {
            assert_eq!(name, "partitions");
            answer
        }
        other => panic!("{other:?}"),
    };
    let waiting = |requested: &str| {
        let full = json!({"waiting": [{"controller": "pod1:8090", "reason": "full"}]});
        let mut partition = partition(1, &full);
        partition.requested = Some(requested.parse().unwrap());
        vec![held().remove(0), partition]
    };
    assert_eq!(answer(vec![]).state, State::Pending);
    let both = vec![partition(0, &ready()), partition(1, &ready())];
    assert_eq!(answer(both).state, State::Ready);
    let pending = answer(waiting("2026-01-01T00:00:55Z"));
    assert_eq!(pending.state, State::Pending);
    assert!(
        pending.message.contains("pod1:8090: full"),
        "{}",
        pending.message
    );
    let retried = answer(waiting("2026-01-01T00:00:20Z"));
    assert_eq!(retried.state, State::Retry);
    let rejected = json!({"phase": "Rejected", "message": "too large"});
    let rejected = answer(vec![partition(0, &rejected)]);
    assert_eq!(rejected.state, State::Rejected);
    assert!(rejected.message.contains("too large"));
}

#[test]
fn a_check_that_kueue_is_about_to_handle_is_left_alone() {
    for state in ["Retry", "Rejected"] {
        assert_eq!(step(reserving(), checked(state), vec![]), None, "{state}");
    }
    let early = planned(
        reserving(),
        checked("Pending"),
        vec![partition(
            0,
            &json!({
                "waiting": [{"controller": "pod1:8090", "reason": "full"}],
            }),
        )],
    );
    assert!(early.requeue.is_some(), "the answer changes by itself");
}

#[test]
fn the_quota_of_a_retry_is_released_at_once_and_its_delay_doubles() {
    let waiting = |retries: u32, change: fn(&mut Value)| {
        with(move |workload| {
            condition(workload, "Evicted", "True", "AdmissionCheck");
            workload["status"]["admissionChecks"] =
                json!([{"name": "partitions", "state": "Pending", "retryCount": retries}]);
            change(workload);
        })
    };
    let released = Step::ReleaseQuota { is_retry: true };
    assert_eq!(
        step(suspended(), waiting(1, reserve), vec![]),
        Some(released)
    );
    // A minute ago.
    let retry: fn(&mut Value) =
        |workload| condition(workload, "Requeued", "False", "PartitionRetry");
    for (retries, left) in [
        (1, None),
        (3, None),
        (4, Some(20)),
        (5, Some(100)),
        (60, Some(240)),
    ] {
        let planned = planned(suspended(), waiting(retries, retry), vec![]);
        let expected = left.map(Duration::from_secs);
        assert_eq!(planned.requeue, expected, "{retries}");
        assert_eq!(planned.step, left.is_none().then_some(Step::Requeue));
    }
}

#[test]
fn a_workload_that_was_rejected_can_be_activated_again() {
    for reason in ["Deactivated", "DeactivatedDueToAdmissionCheck"] {
        let evicted = with(|workload| {
            reserve(workload);
            condition(workload, "Evicted", "True", reason);
        });
        let released = Step::ReleaseQuota { is_retry: false };
        assert_eq!(step(suspended(), evicted.clone(), vec![]), Some(released));
        let fields = build::released(&evicted, false, now());
        let conditions = fields["conditions"].as_array().unwrap();
        let requeued = conditions.iter().find(|one| one["type"] == "Requeued");
        let requeued = requeued.unwrap();
        assert_eq!(requeued["status"], "False");
        assert_eq!(requeued["reason"], "Deactivated", "{reason}");
    }
}

#[test]
fn without_quota_the_partitions_of_a_suspended_job_are_taken_back() {
    assert!(matches!(
        step(reserving(), with(|_| {}), vec![]),
        Some(Step::Stop(_))
    ));
}
