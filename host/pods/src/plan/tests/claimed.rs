//! Pods that take over a partition of their Workload.

use std::collections::BTreeMap;

use super::*;
use crate::claims::claimable;

fn of_workload() -> Partition {
    let mut one = offering(State::Ready(partition_ref("p-web")));
    one.is_of_pod = false;
    one.is_of_workload = true;
    one.owner.kind = "Workload".to_owned();
    one.owner.name = "batch".to_owned();
    one
}

fn admitted(change: impl FnOnce(&mut serde_json::Value)) -> NativePod {
    native(|pod| {
        pod["metadata"]["annotations"]["graphcore.ai/workload"] = json!("batch");
        change(pod);
    })
}

#[test]
fn an_admitted_pod_claims_a_partition_of_its_workload_instead_of_requesting_one() {
    let offered = |pod: NativePod| ObservedPod {
        claimable: Some(of_workload()),
        ..observed(pod, None)
    };
    let claim = || Some(Step::Claim(Box::new(of_workload())));
    let forming = Some("PartitionForming");
    let mut held = offered(admitted(|_| {}));
    held.pod.stage = Stage::Gated(vec!["kueue.x-k8s.io/admission".to_owned()]);
    let mut claimed = of_workload();
    claimed.claim = Some((*admitted(|_| {}).reference).clone());
    let mut ended = admitted(|_| {});
    ended.stage = Stage::Ended;
    let release = Some(Step::Release(Box::new(claimed.clone())));
    check(vec![
        ("admitted", offered(admitted(|_| {})), claim(), forming),
        (
            "not admitted",
            held,
            None,
            Some("WaitingForSchedulingGates"),
        ),
        (
            "nothing is left",
            observed(admitted(|_| {}), None),
            Some(Step::Create(4)),
            forming,
        ),
        (
            "claimed",
            observed(admitted(|_| {}), Some(claimed.clone())),
            Some(Step::Bind(partition_ref("p-web"))),
            None,
        ),
        ("ended", observed(ended, Some(claimed)), release, None),
    ]);
}

/// The name of the partition that a Pod claims of these.
fn chosen(partitions: &[&Partition], pod: &NativePod, ipus: u32) -> Option<String> {
    let known: BTreeMap<Box<str>, Partition> = partitions
        .iter()
        .map(|one| (one.name.as_str().into(), (*one).clone()))
        .collect();
    claimable(&known, pod, ipus).map(|one| one.name)
}

#[test]
fn a_pod_claims_only_a_free_partition_of_its_workload_and_size() {
    let free = of_workload();
    let pod = admitted(|_| {});
    assert_eq!(chosen(&[&free], &pod, 4), Some(free.name.clone()));
    let of_none = native(|_| {});
    assert_eq!(chosen(&[&free], &of_none, 4), None, "of no Workload");
    assert_eq!(chosen(&[&free], &pod, 8), None, "of another size");
    let changes: [fn(&mut Partition); 5] = [
        |one| one.claim = Some((*native(|_| {}).reference).clone()),
        |one| one.owner.namespace = "other".to_owned(),
        |one| one.owner.name = "other".to_owned(),
        |one| one.state = State::Waiting(Vec::new()),
        |one| one.node_selector = labels("pool", "b"),
    ];
    for change in changes {
        let mut other = of_workload();
        change(&mut other);
        assert_eq!(chosen(&[&other], &pod, 4), None, "{other:?}");
    }
}

fn labels(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

/// A partition of the Workload on this V-IPU controller, for nodes with these labels.
fn reserved(name: &str, controller: &str, node_selector: BTreeMap<String, String>) -> Partition {
    let mut one = of_workload();
    let mut partition_ref = partition_ref(name);
    partition_ref.controller.label_value = controller.to_owned();
    one.name = name.to_owned();
    one.state = State::Ready(partition_ref);
    one.node_selector = node_selector;
    one
}

/// Pods of the Workload with each of many UIDs, and these labels of nodes.
fn many(selector: &serde_json::Value) -> Vec<NativePod> {
    let pod = |uid: u32| {
        admitted(|pod| {
            pod["metadata"]["uid"] = json!(format!("uid-{uid}"));
            pod["spec"]["nodeSelector"] = selector.clone();
        })
    };
    (0..16).map(pod).collect()
}

#[test]
fn a_pod_claims_a_partition_that_its_nodes_reach_whichever_comes_first() {
    let (first, second) = (
        reserved("one", "pod1", BTreeMap::new()),
        reserved("two", "pod2", BTreeMap::new()),
    );
    for pod in many(&json!({"ipunode": "pod2"})) {
        let name = chosen(&[&first, &second], &pod, 4);
        assert_eq!(name.as_deref(), Some("two"), "{}", pod.reference.uid);
        assert_eq!(chosen(&[&first], &pod, 4), None);
    }
}

#[test]
fn a_pod_claims_a_partition_of_its_own_pod_set() {
    let (any, pool) = (
        reserved("any", "pod1", BTreeMap::new()),
        reserved("pool", "pod1", labels("pool", "a")),
    );
    for pod in many(&json!({"pool": "a", "of-the-namespace": "x"})) {
        let name = chosen(&[&any, &pool], &pod, 4);
        assert_eq!(name.as_deref(), Some("pool"), "{}", pod.reference.uid);
        let mut taken = pool.clone();
        taken.claim = Some((*native(|_| {}).reference).clone());
        let name = chosen(&[&any, &taken], &pod, 4);
        assert_eq!(name, None, "the other one is for other Pods");
    }
    for pod in many(&json!({})) {
        let name = chosen(&[&any, &pool], &pod, 4);
        assert_eq!(name.as_deref(), Some("any"), "{}", pod.reference.uid);
    }
}
