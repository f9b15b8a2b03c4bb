//! Versions that fail, and the conditions of a return to the previous one.

use super::*;

/// A cluster whose second version is active. Both versions roll back when calls fail.
fn second_version(first: &Value, second: &Value) -> Cluster {
    let mut cluster = Cluster::new(first);
    cluster.activate(1);
    cluster.policy.spec = serde_json::from_value(second.clone()).unwrap();
    cluster.activate(2);
    cluster
}

fn rolls_back() -> Value {
    let mut spec = validation();
    spec["rollback"] = json!({"when": "CallsFail"});
    spec
}

#[test]
fn a_version_that_fails_too_often_is_rolled_back_until_the_spec_changes() {
    let mut cluster = second_version(&rolls_back(), &rolls_back());
    for (counts, why) in [
        (recent(95, 4), "4 percent are below the limit"),
        (recent(3, 1), "8 calls are too few"),
    ] {
        cluster.serve(&counts);
        assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(2)), "{why}");
    }
    cluster.serve(&recent(90, 10));
    assert_eq!(cluster.reconcile(), (PolicyPhase::RolledBack, Some(1)));
    assert_eq!(cluster.reconcile(), (PolicyPhase::RolledBack, Some(1)));
    let message = &cluster.status().message;
    assert!(message.contains("20 of its last 200 calls"), "{message}");
    assert!(message.contains("3 namespaces"), "{message}");
    cluster.activate(3);
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(3)));
}

#[test]
fn a_version_whose_keys_are_removed_is_not_returned_to() {
    let mut cluster = second_version(&rolls_back(), &rolls_back());
    cluster.serve(&recent(0, 100));
    let problem = Problem {
        reason: "no key signed it".to_owned(),
        is_final: true,
    };
    cluster.readiness(0).problems.insert(1, problem.clone());
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(2)));
    cluster.readiness(0).problems.clear();
    assert_eq!(cluster.reconcile(), (PolicyPhase::RolledBack, Some(1)));
    cluster.readiness(0).problems.insert(1, problem);
    cluster.reconcile();
    let message = &cluster.status().message;
    let words = "a refuses the previous version, so spec.onError decides: no key signed it";
    assert!(message.contains(words), "{message}");
}

#[test]
fn a_failing_first_version_is_not_rolled_back() {
    let mut cluster = Cluster::new(&rolls_back());
    cluster.activate(1);
    cluster.serve(&recent(0, 100));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(1)));
    assert_eq!(cluster.status().calls.failed, 200);
}

#[test]
fn the_failures_of_one_tenant_roll_nothing_back() {
    let mut cluster = second_version(&rolls_back(), &rolls_back());
    let of_tenant = |namespaces: &[&str]| Counts {
        failing_namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        ..recent(0, 100)
    };
    cluster.serve(&of_tenant(&["mine", "also-mine"]));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(2)));
    // The replicas together see three namespaces.
    cluster.readiness(0).counts = of_tenant(&["another"]);
    assert_eq!(cluster.reconcile(), (PolicyPhase::RolledBack, Some(1)));
}

#[test]
fn the_failures_of_one_user_roll_nothing_back() {
    let mut cluster = second_version(&rolls_back(), &rolls_back());
    let of_user = |user: &str| Counts {
        failing_users: [user.to_owned()].into(),
        ..recent(0, 100)
    };
    cluster.serve(&of_user("ann"));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(2)));
    cluster.readiness(0).counts = of_user("bob");
    assert_eq!(cluster.reconcile(), (PolicyPhase::RolledBack, Some(1)));
}

#[test]
fn an_enforced_version_is_not_rolled_back_to_a_shadow() {
    let mut cluster = second_version(&shadow(1_000), &rolls_back());
    cluster.serve(&recent(0, 100));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(2)));
    assert_eq!(cluster.status().previous, None, "nothing returns to it");
}

#[test]
fn a_rule_that_fails_closed_is_rolled_back_only_by_choice() {
    let placement = json!({"hook": "Defaulting", "module": {"image": {"file": "x.wasm"}}});
    let with = |mut spec: Value, field: &str, value: Value| {
        spec[field] = value;
        spec
    };
    for (spec, is_rolled_back) in [
        (validation(), false),
        (with(validation(), "onError", json!("Ignore")), true),
        // As 0.1.0 understood it.
        (
            with(validation(), "rollback", json!({"failuresPercent": 50})),
            true,
        ),
        (
            with(validation(), "rollback", json!({"when": "Never"})),
            false,
        ),
        (placement.clone(), true),
        (with(placement, "rollback", json!({"when": "Never"})), false),
    ] {
        let mut cluster = second_version(&spec, &spec);
        assert_eq!(
            cluster.status().previous.is_some(),
            is_rolled_back,
            "{spec}"
        );
        cluster.serve(&recent(0, 100));
        let expected = if is_rolled_back {
            (PolicyPhase::RolledBack, Some(1))
        } else {
            (PolicyPhase::Active, Some(2))
        };
        assert_eq!(cluster.reconcile(), expected, "{spec}");
    }
}

#[test]
fn the_previous_version_is_dropped_after_the_time_of_the_rollback() {
    let mut spec = rolls_back();
    spec["rollback"]["withinSeconds"] = json!(60);
    let mut cluster = second_version(&spec, &spec);
    cluster.now += jiff::SignedDuration::from_secs(60);
    cluster.reconcile();
    assert!(cluster.status().previous.is_some(), "it is still possible");
    cluster.now += jiff::SignedDuration::from_secs(1);
    cluster.serve(&recent(0, 100));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(2)));
    assert_eq!(cluster.status().previous, None);
}
