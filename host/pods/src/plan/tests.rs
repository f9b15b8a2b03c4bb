//! A table of the steps for a Pod, by its stage and by the offer of its IPUPartition.

use serde_json::json;

use super::*;
use crate::pod::Termination;
use crate::report::Due;
use crate::samples::{native, offering, partition_ref};

mod claimed;
mod starting;
mod terminating;

/// Nothing but the caches decides.
fn around() -> Circumstances {
    Circumstances {
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
        lost_node: Some(Duration::from_mins(10)),
        node_lost_since: None,
        start_timeout: Some(Duration::from_mins(10)),
        max_ipus: 64,
    }
}

/// The step and the reason of a plan.
fn decided(seen: &ObservedPod, around: &Circumstances) -> (Option<Step>, Option<String>) {
    let Plan { step, report, .. } = plan(seen, around);
    let reason = report.map(|report| {
        let far = "2030-01-01T00:00:00Z".parse().unwrap();
        let mut pod = seen.pod.clone();
        pod.condition = None;
        match report::due(&pod, &report, far) {
            Due::Now(written) => written.0.reason.unwrap(),
            other => panic!("{other:?}"),
        }
    });
    (step, reason)
}

fn check(cases: Vec<(&str, ObservedPod, Option<Step>, Option<&str>)>) {
    for (what, seen, step, reason) in cases {
        let expected = (step, reason.map(ToOwned::to_owned));
        assert_eq!(decided(&seen, &around()), expected, "{what}");
    }
}

fn observed(pod: NativePod, own: Option<Partition>) -> ObservedPod {
    ObservedPod {
        pod,
        own,
        named: None,
        claimable: None,
    }
}

#[test]
fn no_partition_is_requested_that_no_pod_may_have() {
    for (ipus, is_created) in [("64", true), ("128", false), ("48", false)] {
        let pod = native(|pod| {
            pod["metadata"]["annotations"]["graphcore.ai/ipu"] = json!(ipus);
        });
        let (step, reason) = decided(&observed(pod, None), &around());
        assert_eq!(step.is_some(), is_created, "{ipus}");
        let expected = if is_created {
            "PartitionForming"
        } else {
            "InvalidRequest"
        };
        assert_eq!(reason.as_deref(), Some(expected), "{ipus}");
    }
}

/// The Pod after its gate was removed, with this id.
fn bound(id: &str) -> NativePod {
    native(|pod| {
        pod["spec"]["schedulingGates"] = json!(null);
        pod["metadata"]["labels"]["graphcore.ai/partition-id"] = json!(id);
    })
}

fn full() -> State {
    State::Waiting(vec!["pod1:8090: full".to_owned()])
}

fn gated(change: impl FnOnce(&mut serde_json::Value), own: Option<State>) -> ObservedPod {
    observed(native(change), own.map(offering))
}

#[test]
fn a_gated_pod_gets_its_partition() {
    let ready = || Some(State::Ready(partition_ref("p-web")));
    let on = |value: &'static str| {
        move |pod: &mut serde_json::Value| {
            pod["spec"]["nodeSelector"] = json!({"ipunode": value});
        }
    };
    let kueue = |pod: &mut serde_json::Value| {
        pod["spec"]["schedulingGates"] =
            json!([{"name": "graphcore.ai/partition"}, {"name": "kueue.x-k8s.io/admission"}]);
    };
    let unreadable = |pod: &mut serde_json::Value| {
        pod["metadata"]["annotations"]["graphcore.ai/ipu"] = json!("x");
    };
    let mut terminating = gated(|_| {}, None);
    terminating.pod.termination = Some(deleted_on(None));
    let bind = || Some(Step::Bind(partition_ref("p-web")));
    let (forming, invalid) = (Some("PartitionForming"), Some("InvalidRequest"));
    let gates = Some("WaitingForSchedulingGates");
    check(vec![
        ("new", gated(|_| {}, None), Some(Step::Create(4)), forming),
        ("other gates", gated(kueue, None), None, gates),
        ("ready", gated(|_| {}, ready()), bind(), None),
        ("ready here", gated(on("pod1"), ready()), bind(), None),
        ("ready elsewhere", gated(on("pod2"), ready()), None, invalid),
        ("unreadable", gated(unreadable, None), None, invalid),
        ("deleted", terminating, None, None),
    ]);
}

#[test]
fn a_gated_pod_says_why_it_waits() {
    let broken = State::Broken("a link is down".to_owned());
    let release = Some(Step::Release(Box::new(offering(broken.clone()))));
    let waiting = Some("WaitingForPartition");
    let on_its_way = State::Waiting(vec![]);
    let rejected = State::Rejected("too large".to_owned());
    let resetting = State::Unusable("a reset".to_owned());
    let releasing = State::Releasing("soon".to_owned());
    let of = |state| gated(|_| {}, Some(state));
    check(vec![
        ("on its way", of(on_its_way), None, Some("PartitionForming")),
        ("full", of(full()), None, waiting),
        ("rejected", of(rejected), None, Some("PartitionRejected")),
        ("resetting", of(resetting), None, waiting),
        ("releasing", of(releasing), None, waiting),
        ("broken before use", of(broken), release, waiting),
    ]);
}

/// The termination of a Pod whose grace period is over.
fn deleted_on(node: Option<&str>) -> Termination {
    Termination {
        due: "2026-01-01T00:30:00Z".parse().unwrap(),
        node: node.map(ToOwned::to_owned),
    }
}

/// The Pod with this id, and its IPUPartition.
fn running(id: &str, own: Option<State>) -> ObservedPod {
    observed(bound(id), own.map(offering))
}

/// The same, of a controller.
fn replaced(id: &str, own: Option<State>) -> ObservedPod {
    let mut seen = running(id, own);
    seen.pod.has_controller = true;
    seen
}

#[test]
fn a_running_pod_keeps_its_partition_and_learns_of_its_loss() {
    let ready = || Some(State::Ready(partition_ref("p-web")));
    let broken = || Some(State::Broken("a link is down".to_owned()));
    let resetting = || Some(State::Unusable("a reset".to_owned()));
    let releasing = || Some(State::Releasing("soon".to_owned()));
    let mut terminating = running("p-web", broken());
    terminating.pod.termination = Some(deleted_on(None));
    let lost = Some("PartitionLost");
    let evict = |why: &str| Some(Step::Evict(report::lost(why, true).disruption()));
    let deleted = Some("PartitionReleasing");
    check(vec![
        (
            "it runs",
            running("p-web", ready()),
            None,
            Some("PartitionReady"),
        ),
        ("resetting", running("p-web", resetting()), None, None),
        ("disturbed", running("p-web", Some(full())), None, None),
        ("broken", running("p-web", broken()), None, lost),
        (
            "broken, replaced",
            replaced("p-web", broken()),
            evict("partition p-web: a link is down"),
            lost,
        ),
        (
            "another id",
            replaced("p-old", ready()),
            evict("partition p-old does not exist any more"),
            lost,
        ),
        ("gone", running("p-web", None), None, lost),
        (
            "deleted by hand",
            running("p-web", releasing()),
            None,
            deleted,
        ),
        ("it ends", terminating, None, None),
    ]);
}

#[test]
fn a_gate_that_another_client_removed_leaves_a_pod_without_a_partition() {
    let unbound = |own| {
        let mut seen = running("p-web", own);
        seen.pod.partition_id = None;
        seen
    };
    let (release, removed) = (
        Step::Release(Box::new(offering(full()))),
        Some("GateRemoved"),
    );
    check(vec![
        (
            "a partition is left",
            unbound(Some(full())),
            Some(release),
            removed,
        ),
        ("nothing is left", unbound(None), None, removed),
    ]);
}

#[test]
fn the_partition_goes_with_the_end_of_the_pod_whatever_it_requests_by_then() {
    for phase in ["Succeeded", "Failed"] {
        let mut ended = bound("p-web");
        let read = native(|pod| {
            pod["status"]["phase"] = json!(phase);
            pod["metadata"]["annotations"]["graphcore.ai/ipu"] = json!("x");
        });
        (ended.stage, ended.request) = (read.stage, read.request);
        let own = offering(State::Ready(partition_ref("p-web")));
        let releasing = offering(State::Releasing("soon".to_owned()));
        check(vec![
            (
                "ended",
                observed(ended.clone(), Some(own.clone())),
                Some(Step::Release(Box::new(own))),
                None,
            ),
            (
                "being released",
                observed(ended.clone(), Some(releasing)),
                None,
                None,
            ),
            ("nothing left", observed(ended, None), None, None),
        ]);
    }
}

fn sharing(gcd: &str) -> NativePod {
    native(|pod| {
        pod["metadata"]["annotations"] =
            json!({"graphcore.ai/partition": "shared", "graphcore.ai/gcd": gcd});
    })
}

fn shared(change: impl FnOnce(&mut Partition)) -> Partition {
    let mut shared = offering(State::Ready(partition_ref("p-web")));
    shared.is_of_pod = false;
    shared.owner.kind = "Notebook".to_owned();
    shared.gcds = 2;
    change(&mut shared);
    shared
}

fn with_named(pod: NativePod, named: Option<Partition>) -> ObservedPod {
    ObservedPod {
        pod,
        own: None,
        named,
        claimable: None,
    }
}

#[test]
fn an_existing_partition_is_used_only_in_the_namespace_of_its_owner_and_never_released() {
    let missing = Some("PartitionNotFound");
    let theirs = Some(shared(|one| one.owner.namespace = "other".to_owned()));
    let of_job = Some(shared(|one| one.owner.kind = "IPUJob".to_owned()));
    let of_pod = Some(shared(|one| one.is_of_pod = true));
    let of_workload = Some(shared(|one| one.is_of_workload = true));
    let observed = with_named;
    check(vec![
        (
            "ready",
            observed(sharing("1"), Some(shared(|_| {}))),
            Some(Step::Bind(partition_ref("p-web"))),
            None,
        ),
        (
            "no such GCD",
            observed(sharing("2"), Some(shared(|_| {}))),
            None,
            Some("InvalidRequest"),
        ),
        ("missing", observed(sharing("0"), None), None, missing),
        (
            "in another namespace",
            observed(sharing("0"), theirs),
            None,
            missing,
        ),
        (
            "of an IPUJob",
            observed(sharing("0"), of_job),
            None,
            missing,
        ),
        (
            "of another Pod",
            observed(sharing("0"), of_pod),
            None,
            missing,
        ),
        (
            "of a Workload",
            observed(sharing("0"), of_workload),
            None,
            missing,
        ),
    ]);
}

#[test]
fn a_pod_learns_what_becomes_of_the_partition_that_it_uses() {
    let broken = |one: &mut Partition| one.state = State::Broken("a link".to_owned());
    let mut running = sharing("1");
    running.stage = Stage::Ungated;
    running.partition_id = Some("p-web".to_owned());
    let mut ended = running.clone();
    ended.stage = Stage::Ended;
    let observed = with_named;
    check(vec![
        (
            "broken",
            observed(sharing("0"), Some(shared(broken))),
            None,
            Some("WaitingForPartition"),
        ),
        (
            "lost",
            observed(running.clone(), Some(shared(broken))),
            None,
            Some("PartitionLost"),
        ),
        (
            "running",
            observed(running, Some(shared(|_| {}))),
            None,
            Some("PartitionReady"),
        ),
        ("ended", observed(ended, Some(shared(|_| {}))), None, None),
    ]);
}

#[test]
fn partitions_of_others_are_not_reported() {
    let theirs = Some(shared(|one| one.owner.namespace = "other".to_owned()));
    let of = |named| {
        let seen = with_named(sharing("0"), named);
        plan(&seen, &around())
    };
    assert_eq!(of(theirs), of(None));
}

#[test]
fn many_reasons_are_counted() {
    let reasons: Vec<String> = (0..7).map(|number| number.to_string()).collect();
    assert_eq!(listed(&reasons), "0; 1; 2; 3; 4; and 2 more");
    assert_eq!(listed(&reasons[..5]), "0; 1; 2; 3; 4");
}
