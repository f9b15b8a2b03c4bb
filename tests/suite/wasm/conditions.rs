//! A condition that may take too many steps for an object: nothing is evaluated, and `onError` decides.

use std::sync::Arc;

use ipu_admission::answer::{Answer, Decision};
use ipu_admission::hook_chain::Chain;
use ipu_api::ipupolicy::{CallCounts, Hook, OnError};
use ipu_guest_host::model::Slot;
use ipu_policies::guests::{Entry, Guests, Roster};
use ipu_policies::matching::Matching;
use serde_json::json;
use tests::review;

use super::{create, open, options};

/// What becomes of a request about an object with so many items, at a policy that compares them all with
/// one another.
async fn answer(items: usize, on_error: OnError) -> (Answer, CallCounts) {
    let guests = Guests::new(open(options(&[Slot::Validation])).await);
    let wanted = json!({"matchConditions": [{
        "name": "pairs",
        "expression": "object.spec.items.exists(a, object.spec.items.exists(b, a != b))",
    }]});
    let matching = Matching::new(Some(&serde_json::from_value(wanted).unwrap())).unwrap();
    let entry = Entry {
        name: "mine".into(),
        matching: Arc::new(matching),
        on_error,
        ..Entry::built_in(Hook::Validation)
    };
    let seats = vec![vec![entry.clone()]];
    let trials = Vec::new();
    guests.put(Hook::Validation, Roster { seats, trials });
    let spec = json!({"jobInstances": 1, "ipusPerJobInstance": "2", "items": vec![1; items]});
    let request = review::creating("job", 0, &spec).unwrap();
    let answer = Chain::new(&guests, &request, create()).validated().await;
    (answer, entry.meter.counts().calls)
}

#[tokio::test]
async fn an_object_that_is_too_large_for_a_condition_is_left_to_on_error() {
    let (small, _) = answer(20, OnError::Fail).await;
    assert!(matches!(small.decision, Decision::Allowed), "{small:?}");
    let (refused, counts) = answer(5_000, OnError::Fail).await;
    let Decision::Failed(message) = &refused.decision else {
        panic!("{refused:?}");
    };
    for part in [
        "IPUPolicy mine",
        "pairs cannot be judged",
        "steps for this request",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(counts, CallCounts::default(), "the policy is not to blame");
    let (ignored, counts) = answer(5_000, OnError::Ignore).await;
    assert!(matches!(ignored.decision, Decision::Allowed), "{ignored:?}");
    assert_eq!(ignored.ignored, ["mine"]);
    assert_eq!(counts, CallCounts::default());
}
