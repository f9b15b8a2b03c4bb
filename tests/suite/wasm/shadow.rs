//! Shadow guests: the answer with which each is compared, and the same checks as for the active
//! guest.

use cluster::wait::{Seen, eventually};
use ipu_admission::chain_run::ChainRun;
use ipu_admission::request::AdmissionRequest;
use ipu_api::ipupolicy::{Hook, ShadowCounts};
use ipu_guest_host::ModuleConfig;
use ipu_policies::active_policies::{ActivePolicies, BoundShadow, HookChain};
use ipu_policies::bound_policy::BoundPolicy;
use serde_json::json;
use tests::guests::hostile::{self, REFUSE, TAKE_ALL};
use tests::review;

use super::{create, open, options};

/// A request about a job of more than 4,096 bytes, for which hostile guests wait.
fn request() -> AdmissionRequest {
    let spec = json!({"jobInstances": 1, "ipusPerJobInstance": "2"});
    review::creating("large", 5_000, &spec).unwrap()
}

async fn policy(guests: &ActivePolicies, body: &str) -> BoundPolicy {
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        ..ModuleConfig::default()
    };
    let bytes = hostile::defaulting(body);
    let prepared = guests.host().prepare(Hook::Defaulting, bytes, config);
    BoundPolicy {
        name: "shadow".into(),
        guest: prepared.await.unwrap(),
        ..BoundPolicy::built_in(Hook::Defaulting)
    }
}

/// Sets a chain of one stage, with a shadow that sees every request.
fn set_chain(guests: &ActivePolicies, enforced: BoundPolicy, shadow: BoundPolicy) {
    guests.set_chain(
        Hook::Defaulting,
        HookChain {
            stages: vec![vec![enforced]],
            shadows: vec![BoundShadow {
                policy: shadow,
                version: ("uid".to_owned(), 1),
                stage: Ok(0),
                share_percent: 100,
            }],
            ..HookChain::default()
        },
    );
}

/// Returns the counts of the comparison of one request, which `enforced` and `shadow` both answer.
async fn compared(enforced: Option<&str>, shadow: Option<&str>) -> ShadowCounts {
    let guests = ActivePolicies::new(open(options(&[Hook::Defaulting])).await);
    let of = async |body: Option<&str>| match body {
        Some(body) => policy(&guests, body).await,
        None => BoundPolicy::built_in(Hook::Defaulting),
    };
    let (enforced, shadow) = (of(enforced).await, of(shadow).await);
    let stats = shadow.stats.clone();
    set_chain(&guests, enforced, shadow);
    let request = request();
    ChainRun::new(&guests, &request, create())
        .run_defaulting()
        .await;
    eventually("the comparison ends", async || {
        let ShadowCounts {
            equal,
            different,
            failed,
            ..
        } = stats.counts().shadow;
        Seen::when(stats.counts().shadow, |_| equal + different + failed == 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_policy_that_changes_a_forbidden_path_has_failed() {
    let shadow = compared(None, Some(TAKE_ALL)).await;
    assert_eq!((shadow.failed, shadow.different), (1, 0), "{shadow:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_is_compared_too() {
    let shadow = compared(Some(REFUSE), None).await;
    assert_eq!(
        shadow.samples,
        ["the request was refused; it would have been admitted"]
    );
    let shadow = compared(Some(REFUSE), Some(REFUSE)).await;
    assert_eq!((shadow.equal, shadow.different), (1, 0), "{shadow:?}");
}

#[tokio::test]
async fn an_untrusted_request_and_a_dry_run_count_for_no_rollback_and_no_promotion() {
    let guests = ActivePolicies::new(open(options(&[Hook::Defaulting])).await);
    for (is_trusted, dry_run, counted) in [(true, false, 1), (false, false, 0), (true, true, 0)] {
        let enforced = policy(&guests, REFUSE).await;
        let shadow = BoundPolicy::built_in(Hook::Defaulting);
        let stats = [enforced.stats.clone(), shadow.stats.clone()];
        set_chain(&guests, enforced, shadow);
        let (request, mut admission) = (request(), create());
        admission.dry_run = dry_run;
        let chain = ChainRun::new(&guests, &request, admission).trusted(is_trusted);
        chain.run_defaulting().await;
        let [enforced, shadow] = stats.map(|stats| stats.counts());
        assert_eq!(enforced.calls.answered, 1);
        assert_eq!(enforced.recent.answered, counted);
        if counted == 0 {
            assert_eq!(shadow.shadow, ShadowCounts::default());
        }
    }
}
