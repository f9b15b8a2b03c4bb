//! The next step for a Workload whose Pods request IPUs themselves.

use serde_json::{Value, json};

use super::*;
use crate::check::State;
use crate::pod_sets::relevant;
use crate::samples::{admit, condition, now, observed_job, reserve};

/// Most IPUs of a Pod, in tests.
const MAX_IPUS: u32 = 48;

/// The Workload of a Job with two Pods of 4 IPUs and one Pod without, with one change.
fn workload(change: impl FnOnce(&mut Value)) -> Workload {
    let template = |limits: Value| {
        json!({
            "metadata": {"labels": {"app": "batch"}},
            "spec": {
                "nodeSelector": {"zone": "z"},
                "containers": [{"name": "main", "resources": {"limits": limits}}],
            },
        })
    };
    let mut object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "namespace": "team", "name": "job-batch", "uid": "batch-uid", "resourceVersion": "9",
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "batch", "uid": "job-uid", "controller": true,
            }],
        },
        "spec": {"podSets": [
            {"name": "driver", "count": 1, "template": template(json!({"cpu": "1"}))},
            {"name": "worker", "count": 2, "template": template(json!({"graphcore.ai/ipu": "4"}))},
        ]},
        "status": {"conditions": []},
    });
    reserve(&mut object);
    object["status"]["admissionChecks"] = json!([
        {"name": "other", "state": "Pending", "message": ""},
        {"name": "partitions", "state": "Pending", "message": ""},
    ]);
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

/// Its state, with the flavor `pool-a` and the AdmissionCheck `partitions`.
fn observed(workload: impl Into<Option<Workload>>, partitions: Vec<Reserved>) -> ObservedWorkload {
    let sample = observed_job(crate::samples::job(|_| {}), [], vec![]);
    ObservedWorkload {
        workload: workload.into().map(Arc::new),
        partitions,
        flavors: sample.flavors,
        checks: sample.checks,
    }
}

fn step(workload: impl Into<Option<Workload>>, partitions: Vec<Reserved>) -> Option<Step> {
    planned(workload, partitions, "2026-01-01T00:01:00Z").step
}

/// The plan at a time.
fn planned(workload: impl Into<Option<Workload>>, partitions: Vec<Reserved>, at: &str) -> Plan {
    plan(
        &observed(workload, partitions),
        Some(MAX_IPUS),
        at.parse().unwrap(),
    )
}

/// The slots that are to be created for the Workload.
fn slots_to_create() -> Vec<Slot> {
    match step(workload(|_| {}), vec![]) {
        Some(Step::Create(slots)) => slots,
        other => panic!("{other:?}"),
    }
}

/// The partition of a slot as the API server has it, with one change.
fn reserved(index: usize, status: &Value, change: impl FnOnce(&mut Value)) -> Reserved {
    let object = slots::partition(&workload(|_| {}), &slots_to_create()[index]).unwrap();
    let mut object = json!(object);
    object["metadata"]["uid"] = json!(format!("uid-{index}"));
    object["metadata"]["resourceVersion"] = json!("7");
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:55Z");
    object["status"] = status.clone();
    change(&mut object);
    Reserved::of(&serde_json::from_value(object).unwrap()).unwrap()
}

fn ready(index: usize) -> Reserved {
    reserved(index, &crate::samples::ready(), |_| {})
}

fn claim(object: &mut Value) {
    object["metadata"]["labels"]["graphcore.ai/pod-uid"] = json!("pod-uid");
}

#[test]
fn each_pod_that_requests_ipus_gets_a_partition_before_the_admission() {
    let slots = slots_to_create();
    let indices: Vec<u32> = slots.iter().map(|slot| slot.index).collect();
    assert_eq!(indices, [0, 1]);
    for slot in &slots {
        assert_eq!((slot.ipus, &*slot.pod_set), (4, "worker"));
        assert_eq!(json!(slot.node_selector), json!({"zone": "z", "pool": "a"}));
        assert_eq!(slot.owner_metadata.labels["app"], "batch");
    }
    let object = slots::partition(&workload(|_| {}), &slots[1]).unwrap();
    let owner = &object.spec.owner;
    assert_eq!((&*owner.kind, &*owner.uid), ("Workload", "batch-uid"));
    assert_eq!(object.metadata.owner_references, None);
    assert_eq!(
        step(workload(|_| {}), vec![ready(0)]),
        Some(Step::Create(vec![slots[1].clone()]))
    );
    let fewer = workload(|workload| {
        workload["status"]["admission"]["podSetAssignments"] = json!([
            {"name": "worker", "count": 1, "flavors": {"graphcore.ai/ipu": "pool-a"}},
        ]);
    });
    assert!(matches!(step(fewer, vec![]), Some(Step::Create(slots)) if slots.len() == 1));
}

#[test]
fn the_check_is_ready_with_the_last_partition_and_updates_pods() {
    let answer = |partitions| match step(workload(|_| {}), partitions) {
        Some(Step::AnswerCheck { name, answer }) => {
            assert_eq!(name, "partitions");
            answer
        }
        other => panic!("{other:?}"),
    };
    let full = json!({"waiting": [{"controller": "pod1:8090", "reason": "full"}]});
    let waiting = answer(vec![ready(0), reserved(1, &full, |_| {})]);
    assert_eq!(waiting.state, State::Pending);
    assert!(waiting.message.contains("Pod 1"), "{}", waiting.message);
    assert_eq!(waiting.updates, None);
    let claimed = reserved(1, &crate::samples::ready(), claim);
    assert_eq!(answer(vec![ready(0), claimed]).state, State::Pending);
    let rejected = json!({"phase": "Rejected", "message": "too large"});
    let rejected = answer(vec![ready(0), reserved(1, &rejected, |_| {})]);
    assert_eq!(rejected.state, State::Rejected);

    let done = answer(vec![ready(0), ready(1)]);
    assert_eq!(done.state, State::Ready);
    let check = done.set_in(&json!({"name": "partitions", "state": "Pending"}), now());
    let updates =
        json!([{"name": "worker", "annotations": {"graphcore.ai/workload": "job-batch"}}]);
    assert_eq!(check["podSetUpdates"], updates);
    let checked = workload(|workload| workload["status"]["admissionChecks"][1] = check);
    assert_eq!(step(checked, vec![ready(0), ready(1)]), None);
}

#[test]
fn without_quota_what_no_pod_has_claimed_is_released() {
    let claimed = || reserved(0, &crate::samples::ready(), claim);
    let leaving = |object: &mut Value| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:50Z");
    };
    let gone: [fn(&mut Value); 4] = [
        |workload| condition(workload, "Evicted", "True", "Preempted"),
        |workload| condition(workload, "Finished", "True", "Succeeded"),
        |workload| workload["spec"]["active"] = json!(false),
        |workload| workload["status"]["conditions"] = json!([]),
    ];
    for change in gone {
        let release = Some(Step::Release(Box::new(ready(1))));
        assert_eq!(step(workload(change), vec![claimed(), ready(1)]), release);
        let left = vec![claimed(), reserved(1, &crate::samples::ready(), leaving)];
        assert_eq!(step(workload(change), left), None);
    }
    assert!(matches!(step(None, vec![ready(0)]), Some(Step::Release(_))));
    let again = workload(|workload| workload["metadata"]["uid"] = json!("another"));
    assert!(matches!(
        step(again, vec![ready(0)]),
        Some(Step::Release(_))
    ));
    // Pods of an admitted Workload may still be created.
    let admitted = admitted_workload(|_| {});
    assert_eq!(step(admitted, vec![claimed(), ready(1)]), None);
}

/// The Workload admitted at midnight, with one change.
fn admitted_workload(change: fn(&mut Value)) -> Workload {
    workload(|workload| {
        admit(workload);
        workload["status"]["admissionChecks"][1]["state"] = json!("Ready");
        change(workload);
    })
}

/// The partition of the first slot, which a Pod has claimed at this time.
fn claimed_at(time: &str) -> Reserved {
    reserved(0, &crate::samples::ready(), |object| {
        claim(object);
        object["metadata"]["annotations"] = json!({"graphcore.ai/claimed-at": time});
    })
}

#[test]
fn what_no_pod_claims_within_an_hour_is_released() {
    let at = |time: &str, partitions| planned(admitted_workload(|_| {}), partitions, time);
    let claimed = || reserved(0, &crate::samples::ready(), claim);
    let early = at("2026-01-01T00:06:00Z", vec![claimed(), ready(1)]);
    assert_eq!(early.step, None, "a JobSet may start in order");
    assert_eq!(early.requeue, Some(Duration::from_mins(54)));
    let release = Some(Step::Release(Box::new(ready(1))));
    let late = "2026-01-01T01:00:00Z";
    assert_eq!(at(late, vec![claimed(), ready(1)]).step, release);
    assert_eq!(at(late, vec![claimed()]), Plan::default());
    // Each claim shows that Pods are still being created.
    let claimed = claimed_at("2026-01-01T00:30:00Z");
    let waits = at(late, vec![claimed.clone(), ready(1)]);
    assert_eq!(waits.step, None);
    assert_eq!(waits.requeue, Some(Duration::from_mins(30)));
    let later = at("2026-01-01T01:30:00Z", vec![claimed, ready(1)]);
    assert_eq!(later.step, release);
    let forged = claimed_at("2027-01-01T00:00:00Z");
    assert_eq!(at(late, vec![forged, ready(1)]).step, release);
    // Its check waits for them.
    let pending = planned(
        workload(|_| {}),
        vec![ready(0), ready(1)],
        "2026-01-02T00:00:00Z",
    );
    assert!(matches!(pending.step, Some(Step::AnswerCheck { .. })));
}

#[test]
fn what_holds_a_drain_or_has_no_pod_to_come_is_released_after_five_minutes() {
    let mut drained = crate::samples::ready();
    drained["message"] =
        json!("pod1:8090 is being drained, and waits until this partition is released");
    let drained = || reserved(1, &drained, |_| {});
    let both = || vec![ready(0), drained()];
    let early = planned(admitted_workload(|_| {}), both(), "2026-01-01T00:04:50Z");
    assert_eq!(early.step, None);
    assert_eq!(early.requeue, Some(Duration::from_secs(10)));
    let late =
        |workload: Workload, partitions| planned(workload, partitions, "2026-01-01T00:05:00Z").step;
    let release = Some(Step::Release(Box::new(drained())));
    assert_eq!(late(admitted_workload(|_| {}), both()), release);
    let running =
        admitted_workload(|workload| condition(workload, "PodsReady", "True", "PodsReady"));
    let release = Some(Step::Release(Box::new(ready(1))));
    let claimed = claimed_at("2026-01-01T00:00:00Z");
    assert_eq!(late(running, vec![claimed, ready(1)]), release);
}

#[test]
fn no_partition_is_created_for_a_pod_that_the_rules_for_its_size_refuse() {
    for (ipus, said) in [
        ("3", "request 2 or 4"),
        ("33", "request 32"),
        ("64", "more than the 48 IPUs"),
    ] {
        let of_size = workload(|workload| {
            let template = &mut workload["spec"]["podSets"][1]["template"];
            template["spec"]["containers"][0]["resources"]["limits"] =
                json!({"graphcore.ai/ipu": ipus});
        });
        let Some(Step::AnswerCheck { answer, .. }) = step(of_size, vec![]) else {
            panic!("{ipus} IPUs");
        };
        assert_eq!(answer.state, State::Rejected);
        let message = answer.message;
        assert!(message.contains(said), "{message}");
        assert!(message.contains("pod set worker"), "{message}");
    }
}

#[test]
fn after_a_retry_partitions_are_requested_again_after_its_delay() {
    let retried = |retries: u32, change: fn(&mut Value)| {
        workload(move |workload| {
            workload["status"]["admissionChecks"][1] = json!({
                "name": "partitions", "state": "Pending", "message": "reset", "retryCount": retries,
                "lastTransitionTime": "2026-01-01T00:00:20Z",
            });
            change(workload);
        })
    };
    // The delay is 10, 20 and then 30 seconds, of which 25 have passed.
    let early = "2026-01-01T00:00:45Z";
    for retries in 1..=2 {
        let again = planned(retried(retries, |_| {}), vec![], early);
        assert!(matches!(again.step, Some(Step::Create(_))), "{again:?}");
    }
    for retries in [3, 4, 60] {
        let waits = planned(retried(retries, |_| {}), vec![], early);
        assert_eq!(waits.requeue, Some(Duration::from_secs(5)), "{retries}");
        let Some(Step::AnswerCheck { answer, .. }) = waits.step else {
            panic!("its delay is not over");
        };
        assert_eq!(answer.state, State::Pending);
        let message = &answer.message;
        assert!(message.ends_with("at 2026-01-01T00:00:50Z"), "{message}");
    }
    let checked = retried(4, |workload| {
        workload["status"]["admissionChecks"][1]["message"] = json!(
            "no V-IPU controller had free capacity for the partitions; they are requested again at 2026-01-01T00:00:50Z"
        );
    });
    let release = Some(Step::Release(Box::new(ready(1))));
    let step_early = |partitions| planned(checked.clone(), partitions, early).step;
    assert_eq!(step_early(vec![ready(1)]), release);
    assert_eq!(step_early(vec![]), None);
    let over = planned(checked.clone(), vec![], "2026-01-01T00:00:50Z");
    assert!(matches!(over.step, Some(Step::Create(_))), "{over:?}");
}

#[test]
fn a_partition_for_other_nodes_is_replaced_once_it_is_gone() {
    let elsewhere = |object: &mut Value| {
        object["spec"]["options"]["nodeSelector"] = json!({"pool": "b"});
    };
    let outdated = reserved(1, &crate::samples::ready(), elsewhere);
    let release = Some(Step::Release(Box::new(outdated.clone())));
    assert_eq!(step(workload(|_| {}), vec![ready(0), outdated]), release);
}

#[test]
fn what_needs_no_partition_before_its_admission_is_answered_at_once() {
    let at_once = Step::AnswerCheck {
        name: "partitions".to_owned(),
        answer: Answer::of_other_jobs(),
    };
    let changes: [fn(&mut Value); 4] = [
        |workload| workload["spec"]["podSets"][1]["template"] = json!({}),
        |workload| workload["spec"]["podSets"][1]["count"] = json!(SLOTS_MAX + 1),
        |workload| workload["metadata"]["ownerReferences"] = json!([]),
        |workload| {
            let template = &mut workload["spec"]["podSets"][1]["template"];
            template["spec"]["containers"] = json!([{"name": "main"}]);
            template["metadata"]["annotations"] = json!({"graphcore.ai/partition": "shared"});
        },
    ];
    for change in changes {
        assert_eq!(step(workload(change), vec![]), Some(at_once.clone()));
    }
    let planned = plan(&observed(workload(|_| {}), vec![]), None, now());
    assert_eq!(planned.step, Some(at_once), "nobody would claim them");
    let unknown = workload(|workload| {
        workload["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = json!("new");
    });
    let planned = plan(&observed(unknown, vec![]), Some(MAX_IPUS), now());
    assert_eq!((planned.step, planned.requeue), (None, Some(FLAVOR_DELAY)));
    let of_others = workload(|workload| workload["status"]["admissionChecks"] = json!([]));
    assert_eq!(step(of_others, vec![]), None);
}

#[test]
fn a_stored_template_is_that_of_a_prebuilt_workload_too() {
    let sets = workload(|_| {}).spec.pod_sets;
    let [without, with] = &sets[..] else {
        panic!("{sets:?}");
    };
    assert_eq!(
        slots::pruned(&without.template),
        relevant(&without.template)
    );
    let kept = slots::pruned(&with.template);
    assert_eq!(kept["metadata"]["labels"]["app"], "batch");
    assert_eq!(relevant(&kept), relevant(&with.template));
}
