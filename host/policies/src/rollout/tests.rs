//! The status of a policy while its replicas start, get ready, fail and end.

mod kstatus;
mod rollbacks;
mod unreadable;

use std::collections::BTreeMap;

use ipu_api::ipupolicy::Hook;
use serde_json::json;

use super::super::active_set::{active_set, active_versions};
use super::super::report::{Problem, Serving};
use super::*;

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A cluster with one policy and its replicas.
struct Cluster {
    policy: IPUPolicy,
    unreadable: Option<String>,
    reports: Vec<Report>,
    now: Timestamp,
}

impl Cluster {
    fn new(spec: &Value) -> Self {
        let policy = serde_json::from_value(json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
            "metadata": {"name": "mine", "uid": "u", "generation": 1},
            "spec": spec,
        }))
        .unwrap();
        let report = |replica: &str| Report {
            replica: replica.to_owned(),
            hooks: vec![Hook::Defaulting, Hook::Validation],
            policies: BTreeMap::new(),
        };
        Self {
            policy,
            unreadable: None,
            now: now(),
            reports: ["a", "b"].map(report).into(),
        }
    }

    /// Every replica is ready with the version of this generation, which becomes active.
    fn activate(&mut self, generation: i64) {
        self.policy.metadata.generation = Some(generation);
        self.prepare(0, generation);
        self.prepare(1, generation);
        self.reconcile();
    }

    fn readiness(&mut self, replica: usize) -> &mut Readiness {
        let policies = &mut self.reports[replica].policies;
        policies.entry("u".to_owned()).or_default()
    }

    fn prepare(&mut self, replica: usize, generation: i64) {
        let digest = format!("sha256:{generation}");
        self.readiness(replica).prepared.insert(generation, digest);
    }

    /// Every replica serves with the active version and reports these results.
    fn serve(&mut self, counts: &Counts) {
        let active = self.status().active.clone().unwrap();
        for replica in 0..2 {
            let readiness = self.readiness(replica);
            readiness.serving = Some(Serving {
                generation: active.generation,
                digest: active.digest.clone(),
                since: now(),
            });
            readiness.counts = counts.clone();
        }
    }

    fn observed(&self) -> ObservedPolicy {
        ObservedPolicy {
            policy: self.policy.clone(),
            unreadable: self.unreadable.clone(),
        }
    }

    fn change(&mut self) {
        *self.policy.metadata.generation.as_mut().unwrap() += 1;
    }

    fn status(&self) -> &IPUPolicyStatus {
        self.policy.status.as_ref().unwrap()
    }

    fn reconcile(&mut self) -> (PolicyPhase, Option<i64>) {
        let mut observed = self.observed();
        let next = status(&observed, &self.reports, self.now);
        observed.policy.status = Some(next.clone());
        let versions = active_versions([&observed].into_iter());
        let active_set = active_set(&versions, self.policy.spec.hook);
        let next = with_phase(next, &observed, &self.reports, &active_set, self.now);
        let seen = (
            next.phase,
            next.active.as_ref().map(|found| found.generation),
        );
        self.policy.status = Some(next);
        seen
    }
}

fn validation() -> Value {
    json!({"hook": "Validation", "module": {"image": {"file": "x.wasm"}}})
}

fn shadow(equal: i64) -> Value {
    let mut spec = validation();
    spec["mode"] = json!("Shadow");
    spec["shadow"] = json!({"promoteAfter": {"equal": equal}});
    spec
}

/// Calls in three namespaces, by two users: enough for a rollback.
fn recent(answered: i64, failed: i64) -> Counts {
    let calls = CallCounts { answered, failed };
    Counts {
        calls,
        recent: calls,
        failing_namespaces: ["a", "b", "c"].map(str::to_owned).into(),
        failing_users: ["ann", "bob"].map(str::to_owned).into(),
        ..Counts::default()
    }
}

fn compared(equal: i64, different: i64) -> Counts {
    Counts {
        shadow: ShadowCounts {
            equal,
            different,
            ..ShadowCounts::default()
        },
        ..Counts::default()
    }
}

#[test]
fn a_version_becomes_active_once_every_replica_is_ready() {
    let mut cluster = Cluster::new(&validation());
    assert_eq!(cluster.reconcile(), (PolicyPhase::Loading, None));
    assert!(
        cluster
            .status()
            .message
            .contains("the module is loading on a, b")
    );
    cluster.prepare(0, 1);
    assert_eq!(cluster.reconcile(), (PolicyPhase::Loading, None));
    assert!(
        cluster
            .status()
            .message
            .contains("the module is loading on b")
    );
    cluster.prepare(1, 1);
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(1)));
    assert_eq!(
        cluster.status().conditions[0].status,
        "False",
        "no replica serves with it yet"
    );
    cluster.serve(&Counts::default());
    cluster.reconcile();
    assert_eq!(cluster.status().conditions[0].status, "True");
    assert_eq!(cluster.status().active_digest.as_deref(), Some("sha256:1"));
}

#[test]
fn a_version_that_one_replica_refuses_does_not_replace_the_active_one() {
    let mut cluster = Cluster::new(&validation());
    cluster.prepare(0, 1);
    cluster.prepare(1, 1);
    cluster.reconcile();
    cluster.change();
    cluster.prepare(0, 2);
    let problem = |is_final| Problem {
        reason: "it imports wasi:http".to_owned(),
        is_final,
    };
    cluster.readiness(1).problems.insert(2, problem(false));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Loading, Some(1)));
    cluster.readiness(1).problems.insert(2, problem(true));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Refused, Some(1)));
    let message = &cluster.status().message;
    assert!(
        message.contains("b refuses the module, and the previous version stays active"),
        "{message}"
    );
    assert_eq!(
        cluster.status().replicas[1].problem.as_deref(),
        Some("it imports wasi:http")
    );
}

#[test]
fn on_error_decides_once_the_keys_of_the_active_version_are_removed() {
    let mut cluster = Cluster::new(&validation());
    cluster.activate(1);
    let problem = Problem {
        reason: "it has no signature by a key in spec.module.oci.signature.keys".to_owned(),
        is_final: true,
    };
    // The keys in a ConfigMap, or those of the release.
    let readiness = cluster.readiness(0);
    readiness.prepared.clear();
    readiness.problems.insert(1, problem.clone());
    assert_eq!(cluster.reconcile(), (PolicyPhase::Refused, Some(1)));
    assert_eq!(
        cluster.status().message,
        "a refuses the module, and spec.onError decides: it has no signature by a key in \
         spec.module.oci.signature.keys"
    );
    // The keys in spec: the new version is refused as well, or still loads.
    cluster.change();
    assert_eq!(cluster.reconcile(), (PolicyPhase::Loading, Some(1)));
    let words = "the previous version is refused too, so spec.onError decides";
    let message = &cluster.status().message;
    assert!(message.starts_with(words), "{message}");
    cluster.readiness(0).problems.insert(2, problem);
    assert_eq!(cluster.reconcile(), (PolicyPhase::Refused, Some(1)));
    let message = &cluster.status().message;
    assert!(message.contains(words), "{message}");
}

#[test]
fn the_status_of_a_new_policy_says_that_requests_wait_for_it() {
    let mut waiting = validation();
    waiting["untilActive"] = json!("Wait");
    for (spec, expected) in [
        (
            waiting,
            "no version is active, so matching requests wait (spec.untilActive); the",
        ),
        (validation(), "no version is active; the"),
    ] {
        let mut cluster = Cluster::new(&spec);
        cluster.prepare(0, 1);
        assert_eq!(cluster.reconcile(), (PolicyPhase::Loading, None));
        let message = &cluster.status().message;
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn replicas_with_different_modules_block_activation() {
    let mut cluster = Cluster::new(&validation());
    cluster.prepare(0, 1);
    cluster
        .readiness(1)
        .prepared
        .insert(1, "sha256:other".to_owned());
    assert_eq!(cluster.reconcile(), (PolicyPhase::Loading, None));
    assert!(cluster.status().message.contains("set module.digest to"));
}

#[test]
fn without_replicas_the_message_names_the_missing_process() {
    let mut cluster = Cluster::new(&validation());
    cluster.reports.clear();
    assert_eq!(cluster.reconcile(), (PolicyPhase::Loading, None));
    assert!(
        cluster
            .status()
            .message
            .contains("no replica of the controller")
    );
}

#[test]
fn a_shadow_policy_is_promoted_after_equal_answers_and_stays_promoted() {
    let mut cluster = Cluster::new(&shadow(100));
    cluster.prepare(0, 1);
    cluster.prepare(1, 1);
    assert_eq!(cluster.reconcile(), (PolicyPhase::Shadow, Some(1)));
    cluster.serve(&compared(49, 0));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Shadow, Some(1)));
    cluster.serve(&compared(80, 1));
    assert_eq!(
        cluster.reconcile(),
        (PolicyPhase::Shadow, Some(1)),
        "one different answer prevents promotion"
    );
    cluster.serve(&compared(50, 0));
    assert_eq!(cluster.reconcile(), (PolicyPhase::Active, Some(1)));
    assert!(cluster.status().active.as_ref().unwrap().promoted);
    cluster.serve(&recent(10, 10));
    assert_eq!(
        cluster.reconcile(),
        (PolicyPhase::Active, Some(1)),
        "failures do not end an enforced rule"
    );
    assert!(cluster.status().active.as_ref().unwrap().promoted);
}

#[test]
fn the_status_has_few_differences() {
    let mut cluster = Cluster::new(&shadow(100));
    cluster.prepare(0, 1);
    cluster.prepare(1, 1);
    cluster.reconcile();
    let mut counts = compared(3, 2);
    counts.shadow.samples = vec!["one".to_owned(), "two".to_owned()];
    cluster.serve(&counts);
    cluster.reconcile();
    let shown = cluster.status().shadow.clone().unwrap();
    assert_eq!(
        (shown.equal, shown.different, shown.samples.len()),
        (6, 4, SAMPLES)
    );
}
