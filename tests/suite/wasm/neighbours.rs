//! A slow policy beside others: their calls are answered meanwhile, and its time is not charged to
//! them.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, select_all};
use ipu_admission::answer::Decision;
use ipu_admission::chain_run::ChainRun;
use ipu_api::guest::admission::Verdict;
use ipu_api::ipupolicy::{CallCounts, Hook, OnError};
use ipu_guest_host::model::Served;
use ipu_guest_host::{BUILT_IN, Guest, GuestError, GuestHost, Limits, ModuleConfig};
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_policies::bound_policy::BoundPolicy;
use serde_json::{Value, json};
use tests::guests::hostile;
use tests::review;

use super::{create, open, options};

/// A guest that never ends for large objects.
const ENDLESS: &str = "(loop (br 0))";

/// Longer than any other step of a test. The deadline ends the calls that remain at the end of the
/// test.
const LONG: Duration = Duration::from_secs(5);

async fn host(limits: Limits) -> GuestHost {
    let mut options = options(&[Hook::Validation]);
    options.limits = limits;
    open(options).await
}

async fn prepared(policies: &GuestHost, deadline: Duration) -> Guest {
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        deadline: Some(deadline),
        ..ModuleConfig::default()
    };
    let component = hostile::validation(ENDLESS);
    let prepared = policies.prepare(Hook::Validation, component, config);
    prepared.await.unwrap()
}

fn large() -> Value {
    json!({ "spec": "x".repeat(8_192) })
}

type Call<'a> = BoxFuture<'a, Result<Served<Verdict>, GuestError>>;

/// Starts this number of calls that do not end, in this order.
async fn endless<'a>(policies: &'a GuestHost, guest: &'a Guest, count: usize) -> Vec<Call<'a>> {
    let mut calls: Vec<Call<'a>> = Vec::new();
    for _ in 0..count {
        let call = async move { policies.validate(guest, &create(), &large(), None).await };
        calls.push(call.boxed());
        let begun = futures::poll!(calls.last_mut().unwrap());
        assert!(begun.is_pending());
    }
    calls
}

#[tokio::test]
async fn a_slow_policy_does_not_delay_other_policies() {
    let limits = Limits::default();
    let policies = host(limits).await;
    let (slow, fast) = (
        prepared(&policies, LONG).await,
        prepared(&policies, LONG).await,
    );
    let calls = endless(&policies, &slow, 4 * limits.concurrent).await;
    let mut calls = select_all(calls);
    for guest in [&fast, &BUILT_IN] {
        let (admission, object) = (create(), json!({}));
        tokio::select! {
            biased;
            ended = &mut calls => panic!("a call of the slow policy ended before: {:?}", ended.0),
            answer = policies.validate(guest, &admission, &object, None) => {
                assert!(answer.is_ok(), "{answer:?}");
            }
        }
    }
}

/// A chain of one policy, which is ignored unless the process is busy, and the counts of its calls.
fn chain_of(guests: &ActivePolicies, guest: Guest) -> BoundPolicy {
    let entry = BoundPolicy {
        name: "policy".into(),
        guest,
        on_error: OnError::Ignore,
        ..BoundPolicy::built_in(Hook::Validation)
    };
    let stages = vec![vec![entry.clone()]];
    guests.set_chain(
        Hook::Validation,
        HookChain {
            stages,
            ..HookChain::default()
        },
    );
    entry
}

/// The reason of a request that can be repeated.
async fn refused(guests: &ActivePolicies, chain: &ChainRun<'_>) -> String {
    let answer = chain.run_validation().await;
    assert!(guests.chain(Hook::Validation).shadows.is_empty());
    match answer.decision {
        Decision::Busy(message) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn waiting_for_a_permit_is_not_charged_to_the_policy() {
    let limits = Limits {
        queue: Duration::from_millis(20),
        ..Limits::default()
    };
    let policies = host(limits).await;
    let guest = prepared(&policies, LONG).await;
    let guests = ActivePolicies::new(policies.clone());
    let entry = chain_of(&guests, guest.clone());
    let _running = endless(&policies, &guest, limits.each_policy).await;
    let spec = json!({"jobInstances": 1, "ipusPerJobInstance": "2"});
    let request = review::creating("small", 0, &spec).unwrap();
    let reason = refused(&guests, &ChainRun::new(&guests, &request, create())).await;
    assert!(reason.contains("busy"), "{reason}");
    assert_eq!(entry.stats.counts().calls, CallCounts::default());
}

/// The deadline of the whole request passes before the policy's own deadline. Other policies may
/// have used that time.
#[tokio::test]
async fn the_end_of_the_requests_time_is_not_charged_to_the_policy() {
    let policies = host(Limits::default()).await;
    let guest = prepared(&policies, LONG).await;
    let guests = ActivePolicies::new(policies);
    let entry = chain_of(&guests, guest);
    let spec = json!({"jobInstances": 1, "ipusPerJobInstance": "2"});
    let request = review::creating("large", 5_000, &spec).unwrap();
    let chain = ChainRun::new(&guests, &request, create()).with_timeout(Duration::from_millis(50));
    let reason = refused(&guests, &chain).await;
    assert!(
        reason.contains("for all guests of a request ended"),
        "{reason}"
    );
    assert_eq!(entry.stats.counts().calls, CallCounts::default());
}
