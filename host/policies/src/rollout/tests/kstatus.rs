//! The status of a policy by the rules of kstatus (sigs.k8s.io/cli-utils), which Argo CD, Flux and
//! kpt wait with.

use super::*;

/// What kstatus computes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computed {
    Current,
    InProgress,
    Failed,
}

/// The published rules for an object that is no built-in kind and is not being deleted.
fn computed(object: &Value) -> Computed {
    let observed = object.pointer("/status/observedGeneration");
    if observed.is_some_and(|observed| *observed != object["metadata"]["generation"]) {
        return Computed::InProgress;
    }
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let value = |type_: &str| {
        let mut found = conditions.into_iter().flatten();
        found
            .find(|condition| condition["type"] == json!(type_))
            .map(|condition| condition["status"] == json!("True"))
    };
    if value("Reconciling") == Some(true) {
        return Computed::InProgress;
    }
    if value("Stalled") == Some(true) {
        return Computed::Failed;
    }
    match value("Ready") {
        Some(false) => Computed::InProgress,
        Some(true) | None => Computed::Current,
    }
}

/// What kstatus computes after a change of the cluster, before and after the operator has observed
/// it.
fn after(cluster: &mut Cluster, change: impl FnOnce(&mut Cluster)) -> (PolicyPhase, Computed) {
    change(cluster);
    let (phase, _) = cluster.reconcile();
    (phase, computed(&json!(cluster.policy)))
}

fn problem(is_final: bool) -> Problem {
    Problem {
        reason: "the registry answers 503".to_owned(),
        is_final,
    }
}

fn serving() -> Cluster {
    let mut cluster = Cluster::new(&validation());
    cluster.activate(1);
    cluster.serve(&Counts::default());
    cluster.reconcile();
    cluster
}

#[test]
fn only_a_served_version_is_current() {
    let mut cluster = Cluster::new(&validation());
    let loading = (PolicyPhase::Loading, Computed::InProgress);
    assert_eq!(after(&mut cluster, |_| {}), loading);
    assert_eq!(
        after(&mut cluster, |cluster| cluster.prepare(0, 1)),
        loading
    );
    let activated = after(&mut cluster, |cluster| cluster.prepare(1, 1));
    assert_eq!(activated, (PolicyPhase::Active, Computed::InProgress));
    let served = after(&mut cluster, |cluster| cluster.serve(&Counts::default()));
    assert_eq!(served, (PolicyPhase::Active, Computed::Current));
    cluster.change();
    assert_eq!(
        computed(&json!(cluster.policy)),
        Computed::InProgress,
        "nothing has observed it"
    );
    assert_eq!(after(&mut cluster, |_| {}), loading);
}

#[test]
fn a_passing_failure_is_progress_and_a_final_one_is_a_failure() {
    for (is_final, expected) in [
        (false, (PolicyPhase::Loading, Computed::InProgress)),
        (true, (PolicyPhase::Refused, Computed::Failed)),
    ] {
        let mut cluster = serving();
        let failed = after(&mut cluster, |cluster| {
            cluster.change();
            cluster.prepare(0, 2);
            cluster.readiness(1).problems.insert(2, problem(is_final));
        });
        assert_eq!(failed, expected);
        let recovered = after(&mut cluster, |cluster| {
            cluster.readiness(1).problems.clear();
            cluster.activate(2);
            cluster.serve(&Counts::default());
        });
        assert_eq!(recovered, (PolicyPhase::Active, Computed::Current));
    }
}

#[test]
fn a_shadow_version_is_current_and_a_rolled_back_one_has_failed() {
    let mut cluster = Cluster::new(&shadow(100));
    cluster.activate(1);
    let served = after(&mut cluster, |cluster| cluster.serve(&compared(1, 1)));
    assert_eq!(served, (PolicyPhase::Shadow, Computed::Current));
    let mut spec = validation();
    spec["rollback"] = json!({"when": "CallsFail"});
    let mut cluster = Cluster::new(&spec);
    cluster.activate(1);
    cluster.activate(2);
    let failed = after(&mut cluster, |cluster| cluster.serve(&recent(0, 100)));
    assert_eq!(failed, (PolicyPhase::RolledBack, Computed::Failed));
}

#[test]
fn a_new_replica_and_a_missing_one_are_progress() {
    let mut cluster = serving();
    let mut new = cluster.reports[0].clone();
    new.replica = "c".to_owned();
    new.policies.clear();
    let joined = after(&mut cluster, |cluster| cluster.reports.push(new));
    assert_eq!(joined, (PolicyPhase::Active, Computed::InProgress));
    let ended = after(&mut cluster, |cluster| cluster.reports.clear());
    assert_eq!(ended.1, Computed::InProgress);
}

#[test]
fn an_unreadable_version_has_failed() {
    let mut cluster = serving();
    let failed = after(&mut cluster, |cluster| {
        cluster.unreadable = Some("cannot read spec.mode".to_owned());
    });
    assert_eq!(failed.1, Computed::Failed);
    let unknown = json!({
        "observedGeneration": 3, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": NOW,
        }],
    });
    let conditions = of_refused(&unknown, 3, "this version does not know the hook", now());
    let object = json!({
        "metadata": {"generation": 3},
        "status": {"observedGeneration": 3, "conditions": conditions},
    });
    assert_eq!(computed(&object), Computed::Failed);
}

#[test]
fn a_policy_that_nothing_has_observed_is_in_progress() {
    // The definition gives a new object this status.
    let object = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 0}});
    assert_eq!(computed(&object), Computed::InProgress);
}
