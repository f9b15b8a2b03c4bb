//! What becomes of a policy while its replicas come, get ready, fail and go.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::lineup::{lineup, members};
use super::super::report::{Asked, Problem};
use super::*;

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A cluster with one policy and its replicas.
struct World {
    policy: IPUPolicy,
    reports: Vec<Report>,
}

impl World {
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
            reports: ["a", "b"].map(report).into(),
        }
    }

    fn said(&mut self, replica: usize) -> &mut Said {
        let policies = &mut self.reports[replica].policies;
        policies.entry("u".to_owned()).or_default()
    }

    fn prepare(&mut self, replica: usize, generation: i64) {
        let digest = format!("sha256:{generation}");
        self.said(replica).prepared.insert(generation, digest);
    }

    /// Every replica asks what is active, and says how it does.
    fn ask(&mut self, counts: &Counts) {
        let active = self.status().active.clone().unwrap();
        for replica in 0..2 {
            let said = self.said(replica);
            said.asks = Some(Asked {
                generation: active.generation,
                digest: active.digest.clone(),
                since: now(),
            });
            said.counts = counts.clone();
        }
    }

    fn change(&mut self) {
        *self.policy.metadata.generation.as_mut().unwrap() += 1;
    }

    fn status(&self) -> &IPUPolicyStatus {
        self.policy.status.as_ref().unwrap()
    }

    fn look(&mut self) -> (PolicyPhase, Option<i64>) {
        let next = status(&self.policy, &self.reports, now());
        self.policy.status = Some(next.clone());
        let members = members([&self.policy].into_iter());
        let lineup = lineup(&members, self.policy.spec.hook);
        let next = with_phase(next, &self.policy, &self.reports, &lineup, now());
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

fn recent(answered: i64, failed: i64) -> Counts {
    let calls = CallCounts { answered, failed };
    Counts {
        calls,
        recent: calls,
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
fn it_becomes_active_once_every_replica_has_it_ready() {
    let mut world = World::new(&validation());
    assert_eq!(world.look(), (PolicyPhase::Loading, None));
    assert!(world.status().message.contains("being made ready by a, b"));
    world.prepare(0, 1);
    assert_eq!(world.look(), (PolicyPhase::Loading, None));
    assert!(world.status().message.contains("being made ready by b"));
    world.prepare(1, 1);
    assert_eq!(world.look(), (PolicyPhase::Active, Some(1)));
    assert_eq!(
        world.status().conditions[0].status,
        "False",
        "nobody asks it yet"
    );
    world.ask(&Counts::default());
    world.look();
    assert_eq!(world.status().conditions[0].status, "True");
    assert_eq!(world.status().active_digest.as_deref(), Some("sha256:1"));
}

#[test]
fn what_one_replica_refuses_comes_into_force_nowhere_and_the_version_before_goes_on() {
    let mut world = World::new(&validation());
    world.prepare(0, 1);
    world.prepare(1, 1);
    world.look();
    world.change();
    world.prepare(0, 2);
    let problem = |is_final| Problem {
        reason: "it imports wasi:http".to_owned(),
        is_final,
    };
    world.said(1).problems.insert(2, problem(false));
    assert_eq!(world.look(), (PolicyPhase::Loading, Some(1)));
    world.said(1).problems.insert(2, problem(true));
    assert_eq!(world.look(), (PolicyPhase::Refused, Some(1)));
    let message = &world.status().message;
    assert!(
        message.contains("b refuses it, and the previous version stays active"),
        "{message}"
    );
    assert_eq!(
        world.status().replicas[1].problem.as_deref(),
        Some("it imports wasi:http")
    );
}

#[test]
fn replicas_that_found_different_modules_do_not_come_apart() {
    let mut world = World::new(&validation());
    world.prepare(0, 1);
    world.said(1).prepared.insert(1, "sha256:other".to_owned());
    assert_eq!(world.look(), (PolicyPhase::Loading, None));
    assert!(world.status().message.contains("module.digest says"));
}

#[test]
fn without_replicas_it_says_whom_it_waits_for() {
    let mut world = World::new(&validation());
    world.reports.clear();
    assert_eq!(world.look(), (PolicyPhase::Loading, None));
    assert!(
        world
            .status()
            .message
            .contains("no replica of the controller")
    );
}

#[test]
fn a_version_that_fails_too_often_gives_way_to_the_one_before_and_stays_away() {
    let mut world = World::new(&validation());
    for generation in 1..=2 {
        world.prepare(0, generation);
        world.prepare(1, generation);
        if generation == 2 {
            world.change();
        }
        world.look();
    }
    world.ask(&recent(95, 4));
    assert_eq!(
        world.look(),
        (PolicyPhase::Active, Some(2)),
        "4 percent are few"
    );
    world.ask(&recent(3, 1));
    assert_eq!(
        world.look(),
        (PolicyPhase::Active, Some(2)),
        "8 calls say little"
    );
    world.ask(&recent(90, 10));
    assert_eq!(world.look(), (PolicyPhase::RolledBack, Some(1)));
    assert_eq!(world.look(), (PolicyPhase::RolledBack, Some(1)));
    let message = &world.status().message;
    assert!(message.contains("20 of its last 200 calls"), "{message}");
    world.change();
    world.prepare(0, 3);
    world.prepare(1, 3);
    assert_eq!(world.look(), (PolicyPhase::Active, Some(3)));
}

#[test]
fn a_first_version_that_fails_is_left_to_on_error() {
    let mut world = World::new(&validation());
    world.prepare(0, 1);
    world.prepare(1, 1);
    world.look();
    world.ask(&recent(0, 100));
    assert_eq!(world.look(), (PolicyPhase::Active, Some(1)));
    assert_eq!(world.status().calls.failed, 200);
}

#[test]
fn a_tried_guest_is_promoted_after_equal_answers_and_taken_back_where_it_fails() {
    let mut world = World::new(&shadow(100));
    world.prepare(0, 1);
    world.prepare(1, 1);
    assert_eq!(world.look(), (PolicyPhase::Shadow, Some(1)));
    world.ask(&compared(49, 0));
    assert_eq!(world.look(), (PolicyPhase::Shadow, Some(1)));
    world.ask(&compared(80, 1));
    assert_eq!(
        world.look(),
        (PolicyPhase::Shadow, Some(1)),
        "one that differs is enough"
    );
    world.ask(&compared(50, 0));
    assert_eq!(world.look(), (PolicyPhase::Active, Some(1)));
    assert!(world.status().active.as_ref().unwrap().promoted);
    world.ask(&recent(10, 10));
    assert_eq!(world.look(), (PolicyPhase::RolledBack, Some(1)));
    assert!(!world.status().active.as_ref().unwrap().promoted);
    world.ask(&compared(500, 0));
    assert_eq!(
        world.look(),
        (PolicyPhase::RolledBack, Some(1)),
        "not by itself again"
    );
}

#[test]
fn differences_are_shown_and_few() {
    let mut world = World::new(&shadow(100));
    world.prepare(0, 1);
    world.prepare(1, 1);
    world.look();
    let mut counts = compared(3, 2);
    counts.shadow.samples = vec!["one".to_owned(), "two".to_owned()];
    world.ask(&counts);
    world.look();
    let shown = world.status().shadow.clone().unwrap();
    assert_eq!(
        (shown.equal, shown.different, shown.samples.len()),
        (6, 4, SAMPLES)
    );
}
