//! Texts of hostile guests, and the part of them that reaches users.

use ipu_admission::answer::Decision as Verdict;
use ipu_admission::chain_run::ChainRun;
use ipu_api::guest::placement::{
    ControllerView, Decision, PartitionRequest, Placed, PlacementContext,
};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::ModuleConfig;
use ipu_placement::serial_walk::serial_walk;
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_policies::bound_policy::BoundPolicy;
use ipu_rest::{query_request, what_if};
use ipu_text::is_plain;
use serde_json::{Value, json};
use tests::guests::hostile;
use tests::review;

use super::{create, open, options};

/// Loads guests of one hook with this component.
async fn asking(hook: Hook, component: Vec<u8>) -> ActivePolicies {
    let guests = ActivePolicies::new(open(options(&[hook])).await);
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        ..ModuleConfig::default()
    };
    let prepared = guests.host().prepare(hook, component, config);
    let entry = BoundPolicy {
        name: "hostile".into(),
        guest: prepared.await.unwrap(),
        ..BoundPolicy::built_in(hook)
    };
    let stages = vec![vec![entry]];
    guests.set_chain(
        hook,
        HookChain {
            stages,
            ..HookChain::default()
        },
    );
    guests
}

/// Every text of a JSON value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn controllers() -> Vec<ControllerView> {
    let controllers = ["pod1:8090", "pod2:8090"].map(|name| ControllerView {
        name: name.to_owned(),
        has_nodes: true,
        total_ipus: 16,
        largest_free: 16,
        ..ControllerView::default()
    });
    controllers.into()
}

fn placement_request() -> PartitionRequest {
    PartitionRequest {
        namespace: "default".to_owned(),
        owner: "job".to_owned(),
        ipus: 4,
        gcds: 1,
        ..PartitionRequest::default()
    }
}

async fn placed(component: Vec<u8>) -> (ActivePolicies, Placed) {
    let guests = asking(Hook::Placement, component).await;
    let placed = guests
        .place(&placement_request(), &controllers(), &[])
        .await;
    (guests, placed)
}

#[tokio::test]
async fn a_refusal_of_megabytes_is_cut_to_its_first_words() {
    let component = hostile::defaulting(&hostile::refuse_with(3 << 20));
    let guests = asking(Hook::Defaulting, component).await;
    let spec = json!({"jobInstances": 1, "ipusPerJobInstance": "2"});
    let request = review::creating("large", 5_000, &spec).unwrap();
    let answer = ChainRun::new(&guests, &request, create())
        .run_defaulting()
        .await;
    let rendered = answer.render(&request);
    let response = &rendered["response"];
    assert_eq!(response["allowed"], json!(false));
    assert_eq!(response["status"]["code"], json!(422));
    let shown = texts(response);
    assert!(shown.len() > 3);
    for text in shown {
        assert!(text.len() < 1_100, "{}", text.len());
        assert!(text.chars().all(is_plain), "{text:?}");
    }
}

/// Returns the webhook's answer about a large job, with this component.
async fn reviewed(hook: Hook, component: Vec<u8>) -> Verdict {
    let guests = asking(hook, component).await;
    let spec = json!({"jobInstances": 1, "ipusPerJobInstance": "2"});
    let request = review::creating("large", 5_000, &spec).unwrap();
    let chain = ChainRun::new(&guests, &request, create());
    let answer = match hook {
        Hook::Defaulting => chain.run_defaulting().await,
        Hook::Validation | Hook::Placement => chain.run_validation().await,
    };
    answer.decision
}

#[tokio::test]
async fn a_guest_that_fails_says_nothing_about_the_object() {
    for (hook, component, why) in [
        (
            Hook::Defaulting,
            hostile::defaulting(hostile::FAIL),
            "the guest failed: no prices",
        ),
        (
            Hook::Validation,
            hostile::validation(hostile::FAIL),
            "the guest failed: no prices",
        ),
        (
            Hook::Defaulting,
            hostile::defaulting(hostile::REFUSE_FOR_NOTHING),
            "it refuses the object and names no rule",
        ),
    ] {
        let Verdict::Failed(message) = reviewed(hook, component).await else {
            panic!("{hook:?} does not fail: {why}");
        };
        for part in [why, "The object is not the cause"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let (_, placed) = placed(hostile::failing_placement()).await;
    let walk = serial_walk(&placement_request(), &controllers(), &[]);
    assert_eq!(placed.decision, walk);
    let why = placed.overruled.expect("the guest was overruled");
    assert_eq!(why, "the guest failed: no prices");
}

#[tokio::test]
async fn a_wait_that_names_no_controller_is_overruled() {
    for entries in [0, 1, 170_000] {
        let (guests, placed) = placed(hostile::waiting(entries)).await;
        let walk = serial_walk(&placement_request(), &controllers(), &[]);
        assert_eq!(placed.decision, walk, "{entries}");
        let why = placed.overruled.expect("the guest was overruled");
        assert!(why.contains("its wait names"), "{why}");
        let query = query_request::read(br#"{"size": 4}"#).unwrap();
        let views = controllers();
        let shown = what_if::answer(&guests, &query, PlacementContext::default(), &views);
        let shown = shown.await.placement;
        assert_eq!(shown.controller.as_deref(), Some("pod1:8090"));
        assert!(shown.overruled.unwrap().contains("its wait names"));
    }
}

#[tokio::test]
async fn the_text_of_a_rejection_is_printable() {
    let (_, placed) = placed(hostile::rejecting()).await;
    let why = "no\u{fffd}\u{fffd}[2J \u{fffd}!".to_owned();
    assert_eq!(placed.decision, Decision::Reject(why));
    assert_eq!(placed.overruled, None);
}
