//! Shadow policies beside an enforced decision, on a host without modules.

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupolicy::ShadowCounts;
use ipu_guest_host::{GuestHost, GuestHostOptions};
use ipu_placement::samples;
use serde_json::{Value, json};

use super::*;
use crate::active_policies::{BoundShadow, CONCURRENT_COMPARISONS, HookChain};
use crate::active_set::Version;
use crate::matcher::Matcher;

/// The comparisons of a built-in guest in shadow mode with this `spec.match`, after one decision.
async fn compared(matched: Value) -> ShadowCounts {
    let host = GuestHost::open(GuestHostOptions::default()).await;
    let policies = ActivePolicies::new(host.unwrap());
    let matched = serde_json::from_value(matched).unwrap();
    let matcher = Matcher::new(Hook::Placement, Some(&matched)).unwrap();
    let policy = BoundPolicy {
        matcher: Arc::new(matcher),
        ..BoundPolicy::built_in(Hook::Placement)
    };
    let stats = policy.stats.clone();
    let shadow = BoundShadow {
        policy,
        version: Version::default(),
        stage: Ok(0),
        share_percent: 100,
    };
    let chain = HookChain {
        shadows: vec![shadow],
        ..HookChain::default()
    };
    policies.set_chain(Hook::Placement, chain);
    let controllers = samples::controllers();
    let request = samples::place_request();
    let placed = policies.place(&request, &controllers, &[]).await;
    assert_eq!(placed.decision, Decision::Try("empty:8090".to_owned()));
    // A comparison holds a permit until its result is recorded.
    let permits = policies.comparison_permits();
    let all = permits.acquire_many(CONCURRENT_COMPARISONS.try_into().unwrap());
    let _ = tokio::time::timeout(Duration::from_secs(30), all).await;
    stats.counts().shadow
}

#[tokio::test]
async fn a_shadow_policy_whose_match_fails_is_not_ready_for_its_promotion() {
    let failing = json!({"matchConditions": [{"name": "team", "expression": "request.nodeSelector.zone == 'a'"}]});
    let counts = compared(failing).await;
    assert_eq!((counts.failed, counts.equal), (1, 0), "{counts:?}");
    // The labels of the namespace are not known.
    let unknown = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
    let counts = compared(unknown).await;
    assert_eq!((counts.skipped, counts.equal), (1, 0), "{counts:?}");
}

#[tokio::test]
async fn only_matching_requests_are_compared() {
    for (expression, expected) in [("request.ipus == 4", 1), ("request.ipus == 8", 0)] {
        let matched = json!({"matchConditions": [{"name": "size", "expression": expression}]});
        let counts = compared(matched).await;
        let all = counts.equal + counts.different + counts.failed + counts.skipped;
        assert_eq!(all, expected, "{expression}: {counts:?}");
    }
}
