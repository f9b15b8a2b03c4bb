//! A condition that may take too many steps for an object is not evaluated, and `onError` decides.

use std::sync::Arc;

use ipu_admission::answer::{Answer, Decision};
use ipu_admission::chain_run::ChainRun;
use ipu_api::ipupolicy::{CallCounts, Hook, OnError};
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_policies::bound_policy::BoundPolicy;
use ipu_policies::matcher::Matcher;
use serde_json::json;
use tests::review;

use super::{create, open, options};

/// Returns the result of a request about an object with this number of items, for a policy whose
/// condition compares all of them with one another.
async fn answer(items: usize, on_error: OnError) -> (Answer, CallCounts) {
    let guests = ActivePolicies::new(open(options(&[Hook::Validation])).await);
    let wanted = json!({"matchConditions": [{
        "name": "pairs",
        "expression": "object.spec.items.exists(a, object.spec.items.exists(b, a != b))",
    }]});
    let wanted = serde_json::from_value(wanted).unwrap();
    let matcher = Matcher::new(Hook::Validation, Some(&wanted)).unwrap();
    let policy = BoundPolicy {
        name: "mine".into(),
        matcher: Arc::new(matcher),
        on_error,
        ..BoundPolicy::built_in(Hook::Validation)
    };
    let stages = vec![vec![policy.clone()]];
    guests.set_chain(
        Hook::Validation,
        HookChain {
            stages,
            ..HookChain::default()
        },
    );
    let spec = json!({"jobInstances": 1, "ipusPerJobInstance": "2", "items": vec![1; items]});
    let request = review::creating("job", 0, &spec).unwrap();
    let answer = ChainRun::new(&guests, &request, create())
        .run_validation()
        .await;
    (answer, policy.stats.counts().calls)
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
        "pairs cannot be evaluated",
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
