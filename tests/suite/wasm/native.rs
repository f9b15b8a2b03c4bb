//! The three guests answer as components in the same way as their native code.

use std::collections::BTreeSet;

use guest_validation::rules;
use ipu_api::guest::admission::{Defaulting, Violation};
use ipu_api::guest::placement::{
    ControllerView, Decision, PartitionRequest, PlaceAttempt, PlaceOutcome, PlacementContext,
};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::BUILT_IN;
use ipu_placement::serial_walk::serial_walk;
use ipu_policies::active_policies::ActivePolicies;
use serde_json::{Value, json};

use super::{create, open, options};

const RULES: &str = include_str!("../../../guests/validation/src/rules/cases.json");
const DEFAULTS: &str = include_str!("../../../guests/defaulting/src/defaults/cases.json");

fn merged(base: &Value, change: &Value) -> Value {
    let mut value = base.clone();
    json_patch::merge(&mut value, change);
    value
}

#[tokio::test]
async fn validation_answers_as_its_rules() {
    let policies = open(options(&[Hook::Validation])).await;
    let table: Value = serde_json::from_str(RULES).unwrap();
    for case in table["cases"].as_array().unwrap() {
        let object = merged(&table["valid"], &case["change"]);
        let old = case
            .get("old")
            .map(|change| merged(&table["valid"], change));
        let native = rules::check(&object, old.as_ref(), rules::Settings::default());
        let served = policies
            .validate(&BUILT_IN, &create(), &object, old.as_ref())
            .await
            .unwrap();
        let decided: Vec<_> = served
            .answer
            .violations
            .into_iter()
            .map(|violation| (violation.field, violation.message))
            .collect();
        let expected: Vec<_> = native
            .violations
            .into_iter()
            .map(|violation| (violation.field, violation.message))
            .collect();
        assert_eq!(decided, expected, "{}", case["name"]);
        assert_eq!(served.answer.warnings, native.warnings, "{}", case["name"]);
    }
}

#[tokio::test]
async fn validation_knows_the_admins_limit() {
    let table: Value = serde_json::from_str(RULES).unwrap();
    let object = merged(
        &table["valid"],
        &json!({"spec": {"ipusPerJobInstance": "128"}}),
    );
    for (limit, violations) in [(64, 1), (128, 0)] {
        let mut options = options(&[Hook::Validation]);
        options.settings = json!({ "maxIpusPerJob": limit });
        let served = open(options)
            .await
            .validate(&BUILT_IN, &create(), &object, None)
            .await
            .unwrap();
        assert_eq!(served.answer.violations.len(), violations, "limit {limit}");
    }
}

#[tokio::test]
async fn defaulting_answers_as_its_code() {
    let policies = open(options(&[Hook::Defaulting])).await;
    let table: Value = serde_json::from_str(DEFAULTS).unwrap();
    for case in table.as_array().unwrap() {
        let object = json!({"metadata": {"name": "mnist"}, "spec": case["spec"]});
        let native = guest_defaulting::defaults::apply(object.clone());
        let served = policies
            .default_object(&BUILT_IN, &create(), &object, None)
            .await;
        match (served.unwrap().answer, native) {
            (Defaulting::Defaulted(served), Ok(native)) => {
                assert_eq!(served.object, native.object, "{}", case["name"]);
                assert_eq!(served.warnings, native.warnings, "{}", case["name"]);
            }
            (Defaulting::Refused { violations }, Err(native)) => {
                let Violation { field, message } = &violations[0];
                assert_eq!((field, message), (&native.field, &native.message));
            }
            (served, native) => panic!("{}: {served:?} but {native:?}", case["name"]),
        }
    }
}

/// The possible problems of a controller.
#[derive(Clone, Copy, Debug)]
enum State {
    Free,
    Half,
    Full,
    Unreachable,
    Empty,
    Refused,
    Nodeless,
    Cordoned,
}

const STATES: [State; 8] = [
    State::Free,
    State::Half,
    State::Full,
    State::Unreachable,
    State::Empty,
    State::Refused,
    State::Nodeless,
    State::Cordoned,
];

fn view(name: &str, total: u32, state: State) -> ControllerView {
    let used = match state {
        State::Half => total / 2,
        State::Full => total,
        _ => 0,
    };
    let total_ipus = if matches!(state, State::Empty) {
        0
    } else {
        total
    };
    ControllerView {
        name: name.to_owned(),
        label_key: "vipu".to_owned(),
        label_value: name.to_owned(),
        has_nodes: !matches!(state, State::Nodeless),
        unschedulable: matches!(state, State::Cordoned).then(|| "1 is cordoned".to_owned()),
        unreachable: matches!(state, State::Unreachable).then(|| "connection refused".to_owned()),
        total_ipus,
        used_ipus: used,
        largest_free: total_ipus.saturating_sub(used),
        free_blocks: Vec::new(),
        failures: 0,
    }
}

#[tokio::test]
async fn the_serial_walk_answers_as_its_code() {
    let guests = ActivePolicies::new(open(options(&[Hook::Placement])).await);
    let mut kinds = BTreeSet::new();
    for (first, second) in STATES.iter().flat_map(|a| STATES.map(|b| (*a, b))) {
        for (ipus, node) in [(8, None), (32, None), (128, None), (16, Some("pod2"))] {
            let request = PartitionRequest {
                namespace: "default".to_owned(),
                owner: "mnist".to_owned(),
                slot: 0,
                ipus,
                gcds: 1,
                node_selector: node
                    .map(|node: &str| ("vipu".to_owned(), node.to_owned()))
                    .into_iter()
                    .collect(),
                context: PlacementContext::default(),
            };
            let states = [("pod1", 16, first), ("pod2", 64, second)];
            let controllers = states.map(|(name, total, state)| view(name, total, state));
            let attempts: Vec<_> = states
                .iter()
                .filter(|(.., state)| matches!(state, State::Refused))
                .map(|(name, ..)| PlaceAttempt {
                    controller: (*name).to_owned(),
                    outcome: PlaceOutcome::Refused,
                    reason: "no IPUs are adjacent".to_owned(),
                })
                .collect();
            let placed = guests.place(&request, &controllers, &attempts).await;
            assert_eq!(placed.overruled, None);
            assert_eq!(
                placed.decision,
                serial_walk(&request, &controllers, &attempts),
                "{ipus} IPUs with {first:?}, {second:?}"
            );
            kinds.insert(match placed.decision {
                Decision::Try(_) => "try",
                Decision::Wait(_) => "wait",
                Decision::Reject(_) => "reject",
            });
        }
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}
