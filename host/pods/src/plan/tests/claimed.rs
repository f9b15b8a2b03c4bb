//! Pods that take over a partition of their Workload.

use super::*;
use crate::claims::is_claimable;

fn of_workload() -> Partition {
    let mut one = offering(State::Ready(place("p-web")));
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
    let offered = |pod: NativePod| Seen {
        claimable: Some(of_workload()),
        ..seen(pod, None)
    };
    let claim = || Some(Step::Claim(Box::new(of_workload())));
    let forming = Some("PartitionForming");
    let elsewhere: fn(&mut serde_json::Value) =
        |pod| pod["spec"]["nodeSelector"] = json!({"ipunode": "pod2"});
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
            "on other nodes",
            offered(admitted(elsewhere)),
            Some(Step::Create(4)),
            forming,
        ),
        (
            "claimed",
            seen(admitted(|_| {}), Some(claimed.clone())),
            Some(Step::Bind(place("p-web"))),
            None,
        ),
        ("ended", seen(ended, Some(claimed)), release, None),
    ]);
}

#[test]
fn a_pod_claims_only_a_free_partition_of_its_workload_and_size() {
    let free = of_workload();
    assert!(is_claimable(&free, &admitted(|_| {}), 4));
    assert!(!is_claimable(&free, &native(|_| {}), 4), "of no Workload");
    assert!(
        !is_claimable(&free, &admitted(|_| {}), 8),
        "of another size"
    );
    let changes: [fn(&mut Partition); 4] = [
        |one| one.claim = Some((*native(|_| {}).reference).clone()),
        |one| one.owner.namespace = "other".to_owned(),
        |one| one.owner.name = "other".to_owned(),
        |one| one.state = State::Waiting(Vec::new()),
    ];
    for change in changes {
        let mut other = of_workload();
        change(&mut other);
        assert!(!is_claimable(&other, &admitted(|_| {}), 4), "{other:?}");
    }
}
