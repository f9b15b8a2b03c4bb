//! Tests of the partitions that no Pod has used.

use serde_json::{Value, json};

use super::*;
use crate::job_object::job_uid;

const OWNER: &str = "j";

fn job() -> Uid {
    job_uid("default", OWNER)
}

/// An IPUPartition of the job with a status and a number of requested resets.
fn partition(status: &Value, resets: i64) -> IPUPartition {
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "p", "uid": "u", "labels": {labels::JOB_UID_LABEL: OWNER}},
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
                "namespace": "default", "name": "job", "uid": OWNER,
            },
            "slot": 0, "ipus": 4, "gcds": 1, "resetGeneration": resets,
        },
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn status(phase: &str, id: Option<&str>, resets: i64) -> Value {
    let attempt = id.map(|id| {
        json!({
            "id": id, "outcome": "created", "controller": {
                "name": "pod1:8090", "host": "pod1", "port": 8090,
                "labelKey": "ipunode", "labelValue": "pod1",
            },
        })
    });
    json!({
        "phase": phase, "partitionId": id, "generation": 1, "observedResetGeneration": resets,
        "attempts": attempt.into_iter().collect::<Vec<_>>(),
    })
}

fn pod(node: Option<&str>) -> Pod {
    let pod = json!({
        "metadata": {
            "namespace": "default", "name": "job-worker-0", "uid": "w",
            "labels": {
                labels::JOB_UID_LABEL: OWNER, labels::INSTANCE_LABEL: "0", labels::PARTITION_ID_LABEL: "a",
            },
            "ownerReferences": [{
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "name": "job", "uid": OWNER,
                "controller": true,
            }],
        },
        "spec": {"nodeName": node, "containers": []},
    });
    serde_json::from_value(pod).unwrap()
}

/// What has been seen of a partition, version by version: its status and its number of requested resets.
fn seen(versions: &[(Value, i64)]) -> UnusedPartitions {
    let unused = UnusedPartitions::default();
    show(&unused, versions);
    unused
}

fn show(unused: &UnusedPartitions, versions: &[(Value, i64)]) {
    for (status, resets) in versions {
        unused.apply_partition_event(&Event::Apply(partition(status, *resets)));
    }
}

fn keys(unused: &UnusedPartitions) -> Vec<Box<str>> {
    unused.of(job()).into_values().collect()
}

/// A new partition, until it is ready.
fn formed() -> [(Value, i64); 3] {
    [
        (Value::Null, 0),
        (status("Creating", None, 0), 0),
        (status("Ready", Some("a"), 0), 0),
    ]
}

#[test]
fn a_partition_that_was_seen_to_form_is_unused() {
    assert_eq!(keys(&seen(&formed())), ["a/0".into()]);
    let pending = seen(&formed()[..2]);
    assert_eq!(keys(&pending), []);
    show(&pending, &formed()[2..]);
    assert_eq!(keys(&pending), ["a/0".into()]);
}

#[test]
fn a_partition_that_was_first_seen_ready_counts_as_used() {
    assert_eq!(keys(&seen(&formed()[2..])), []);
}

#[test]
fn a_pod_uses_the_partition_unless_it_never_had_a_node() {
    for (event, expected) in [
        (Event::Apply(pod(None)), 0),
        (Event::InitApply(pod(None)), 0),
        (Event::Delete(pod(Some("node"))), 0),
        (Event::Delete(pod(None)), 1),
        (Event::Init, 0),
    ] {
        let unused = seen(&formed());
        unused.apply_pod_event(&event);
        assert_eq!(keys(&unused).len(), expected, "{event:?}");
    }
    let unused = seen(&formed());
    unused.use_by(job(), &[pod(None)]);
    assert_eq!(keys(&unused), []);
}

#[test]
fn a_partition_that_pods_could_use_while_they_are_listed_again_counts_as_used() {
    for (before, during, expected) in [(0..2, 2..3, 0), (0..3, 3..3, 0), (0..1, 1..2, 1)] {
        let unused = seen(&formed()[before]);
        unused.apply_pod_event(&Event::Init);
        show(&unused, &formed()[during]);
        unused.apply_pod_event(&Event::InitDone);
        show(&unused, &formed()[2..]);
        assert_eq!(keys(&unused).len(), expected);
    }
}

#[test]
fn a_list_of_partitions_begins_anew() {
    let unused = seen(&formed()[..2]);
    unused.apply_partition_event(&Event::Init);
    show(&unused, &formed()[2..]);
    assert_eq!(keys(&unused), []);
}

#[test]
fn a_reset_makes_a_used_partition_unused() {
    let unused = seen(&[
        (status("Ready", Some("a"), 0), 0),
        (status("Ready", Some("a"), 0), 1),
        (status("Resetting", Some("a"), 0), 1),
    ]);
    assert_eq!(keys(&unused), []);
    show(&unused, &[(status("Ready", Some("a"), 1), 1)]);
    assert_eq!(keys(&unused), ["a/1".into()]);
}

#[test]
fn the_end_of_a_pod_of_an_earlier_partition_is_no_use_of_a_new_one() {
    let unused = seen(&[
        (status("Ready", Some("a"), 0), 0),
        (status("Resetting", Some("a"), 0), 1),
    ]);
    unused.apply_pod_event(&Event::Delete(pod(Some("node"))));
    show(&unused, &[(status("Ready", Some("b"), 1), 1)]);
    unused.apply_pod_event(&Event::Delete(pod(Some("node"))));
    assert_eq!(keys(&unused), ["b/1".into()]);
}

#[test]
fn a_reset_that_is_withdrawn_leaves_the_partition_used() {
    let unused = seen(&[
        (status("Ready", Some("a"), 0), 0),
        (status("Ready", Some("a"), 0), 1),
        (status("Ready", Some("a"), 0), 0),
    ]);
    assert_eq!(keys(&unused), []);
}

#[test]
fn another_partition_is_unused_and_one_that_comes_back_is_not() {
    let lost = || {
        let mut lost = status("Error", Some("a"), 0);
        lost["partitionId"] = Value::Null;
        seen(&[(status("Ready", Some("a"), 0), 0), (lost, 0)])
    };
    let other = lost();
    show(&other, &[(status("Ready", Some("b"), 0), 0)]);
    assert_eq!(keys(&other), ["b/0".into()]);
    let same = lost();
    show(&same, &[(status("Ready", Some("a"), 0), 0)]);
    assert_eq!(keys(&same), []);
}

#[test]
fn another_object_and_a_deleted_one_are_not_known() {
    let unused = seen(&formed()[..2]);
    let mut other = partition(&status("Ready", Some("a"), 0), 0);
    other.metadata.uid = Some("other".to_owned());
    unused.apply_partition_event(&Event::Apply(other));
    assert_eq!(keys(&unused), []);
    let unused = seen(&formed());
    let gone = partition(&status("Ready", Some("a"), 0), 0);
    unused.apply_partition_event(&Event::Delete(gone));
    assert!(!unused.remembers(job()));
}
