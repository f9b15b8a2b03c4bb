//! Components of `ipu:policy@0.1.0`, as they were built before there was a 0.2.0, are taken and asked.

use ipu_operator::policy::guests::Guests;
use ipu_operator::wasm::BUILT_IN;
use std::path::{Path, PathBuf};

use ipu_operator::wasm::Policies;
use ipu_operator::wasm::facts::{NamespaceFacts, PlaceFacts, Usage};
use ipu_operator::wasm::model::{ControllerView, Decision, PlaceRequest, Slot};
use serde_json::json;

use super::{create, open, options};

/// The built-in guests of 0.1.0, byte for byte.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("suite/wasm/0.1.0")
}

/// The guest of 0.1.0 in the place of the built-in one of today.
async fn earlier(slot: Slot) -> Policies {
    let mut options = options(&[slot]);
    options.guests_dir = folder();
    open(options).await
}

#[tokio::test]
async fn a_defaulter_of_0_1_0_sets_what_it_always_set() {
    let policies = earlier(Slot::Defaulting).await;
    let (object, admission) = (json!({"spec": {}}), create());
    let served = policies
        .default_object(&BUILT_IN, &admission, &object, None)
        .await;
    let answer = served.unwrap().answer;
    assert_eq!(answer.object["spec"]["cleanPodPolicy"], "None");
}

#[tokio::test]
async fn a_validator_of_0_1_0_is_told_of_no_facts_and_answers() {
    let policies = earlier(Slot::Validation).await;
    let mut admission = create();
    admission.facts.usage = Some(Usage::default());
    let object = json!({"spec": {"ipusPerJobInstance": "3"}});
    let served = policies
        .validate(&BUILT_IN, &admission, &object, None)
        .await
        .unwrap();
    let violations = served.answer.violations.iter();
    let fields: Vec<_> = violations.map(|one| one.field.as_str()).collect();
    assert!(fields.contains(&"spec.ipusPerJobInstance"), "{fields:?}");
}

#[tokio::test]
async fn a_placer_of_0_1_0_is_told_of_no_facts_and_decides() {
    let policies = earlier(Slot::Placement).await;
    let request = PlaceRequest {
        namespace: "team".to_owned(),
        owner: "mnist".to_owned(),
        ipus: 4,
        gcds: 1,
        facts: PlaceFacts {
            namespace: NamespaceFacts {
                labels: Some([("tier".to_owned(), "gold".to_owned())].into()),
                usage: None,
            },
            ..PlaceFacts::default()
        },
        ..PlaceRequest::default()
    };
    let view = |name: &str, free| ControllerView {
        name: name.to_owned(),
        has_nodes: true,
        total_ipus: 16,
        used_ipus: 16 - free,
        largest_free: free,
        ..ControllerView::default()
    };
    let controllers = [view("full:8090", 0), view("free:8090", 16)];
    let placed = Guests::new(policies)
        .place(&request, &controllers, &[])
        .await;
    assert_eq!(placed.overruled, None);
    assert_eq!(placed.decision, Decision::Try("free:8090".to_owned()));
}
