//! IPUPolicies on a real API server: activated, replaced, refused, run in the shadow, rolled back
//! and deleted while requests arrive.

mod audit;
mod author_documents;
mod changes;
mod conditions;
mod definition;
mod existing;
mod fixture;
mod oci;
mod rollback;
mod unreadable;
mod until_active;

use cluster::wait::{Seen, eventually};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::{IPUPolicyStatus, PolicyPhase};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tests::guests::hostile;

use self::fixture::{Fixture, Other, at_most, built_in, large_job, of_map};

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_added_replaced_and_deleted_beside_the_built_in_one() {
    let fixture = Fixture::start().await;
    fixture.apply("small", at_most(4)).await.unwrap();
    let active = fixture.once_in("small", PolicyPhase::Active).await;
    let module = built_in("validation.wasm");
    assert_eq!(active.active_digest, Some(digest_of(&module).to_string()));
    fixture.once_answered(8, Some("8")).await;
    fixture.once_answered(4, None).await;
    let ready = |status: &IPUPolicyStatus| {
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let status = fixture.once("small", "ready", ready).await;
    assert_eq!(status.replicas[0].name, "controller-0");

    fixture.apply("small", at_most(16)).await.unwrap();
    fixture.once_answered(8, None).await;
    fixture.once_answered(32, Some("32")).await;
    fixture.once_answered(128, Some("128")).await;

    let params = DeleteParams::default();
    fixture.policies().delete("small", &params).await.unwrap();
    fixture.once_answered(32, None).await;
    fixture.once_answered(128, Some("128")).await;
}

/// Applies a spec that is refused with these words, while the version with this digest stays
/// active.
async fn refuse(fixture: &Fixture, spec: Value, words: &str, active: &str) {
    fixture.apply("limit", spec).await.unwrap();
    let refused = fixture.once_in("limit", PolicyPhase::Refused).await;
    assert!(refused.message.contains(words), "{}", refused.message);
    assert!(refused.message.contains("previous version stays active"));
    assert_eq!(refused.active_digest.as_deref(), Some(active));
    fixture.once_answered(8, Some("8")).await;
}

/// Applies a spec whose module is missing or wrong, and waits until the status says so. Another
/// version stays active.
async fn keep_loading(fixture: &Fixture, spec: Value, words: &str) {
    fixture.apply("limit", spec).await.unwrap();
    let waits = |status: &IPUPolicyStatus| {
        status.phase == PolicyPhase::Loading && status.message.contains(words)
    };
    fixture.once("limit", words, waits).await;
    fixture.once_answered(8, Some("8")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_cannot_be_loaded_is_refused_with_the_reason_and_the_active_one_stays() {
    let fixture = Fixture::start().await;
    let trap = hostile::validation("(unreachable)");
    let modules = [
        ("good.wasm", built_in("validation.wasm")),
        ("walk.wasm", built_in("serial-walk.wasm")),
        ("text.wasm", b"no module".to_vec()),
        ("core.wasm", b"\0asm\x01\0\0\0".to_vec()),
        ("trap.wasm", trap),
    ];
    let digests = fixture.modules(&modules).await;
    let mut good = of_map("Validation", "good.wasm", &digests[0]);
    good["settings"] = json!({"maxIpusPerJob": 4});
    fixture.apply("limit", good.clone()).await.unwrap();
    fixture.once_answered(8, Some("8")).await;

    let mut unsettled = good.clone();
    unsettled["settings"] = json!({"maxIpusPerJob": "many"});
    let mut unjudged = good.clone();
    unjudged["match"] =
        json!({"matchConditions": [{"name": "half", "expression": "object.spec =="}]});
    for (spec, words) in [
        (of_map("Validation", "walk.wasm", &digests[1]), "validation"),
        (of_map("Validation", "text.wasm", &digests[2]), "component"),
        (of_map("Validation", "core.wasm", &digests[3]), "component"),
        (unsettled, "settings"),
        (unjudged, "half is no CEL expression"),
    ] {
        refuse(&fixture, spec, words, &digests[0]).await;
    }
    // A missing or wrong module can be corrected, so the operator waits for it.
    let other = format!("sha256:{}", "0".repeat(64));
    for (spec, words) in [
        (
            of_map("Validation", "good.wasm", &other),
            "set spec.module.digest",
        ),
        (
            of_map("Validation", "none.wasm", &digests[0]),
            "has no key \"none.wasm\"",
        ),
    ] {
        keep_loading(&fixture, spec, words).await;
    }
    // The ConfigMap is deleted while its module is active.
    fixture.apply("limit", good).await.unwrap();
    fixture.once_in("limit", PolicyPhase::Active).await;
    let maps = Api::<ConfigMap>::default_namespaced(fixture.client.clone());
    maps.delete("modules", &DeleteParams::default())
        .await
        .unwrap();
    fixture.once_answered(8, Some("8")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_becomes_active_once_every_live_replica_has_it() {
    let fixture = Fixture::start().await;
    let other = Other::start(fixture.client.clone(), "controller-1").await;
    fixture.apply("small", at_most(4)).await.unwrap();
    let both = |status: &IPUPolicyStatus| {
        status.replicas.len() == 2 && status.replicas.iter().all(|one| one.digest.is_some())
    };
    let status = fixture.once("small", "asked by both", both).await;
    let times: Vec<_> = status
        .replicas
        .iter()
        .filter_map(|one| one.since.clone())
        .collect();
    assert_eq!(times.len(), 2, "each reports since when it calls the guest");
    other.stop().await;
    let alone = |status: &IPUPolicyStatus| status.replicas.len() == 1;
    fixture.once("small", "asked by one", alone).await;
    fixture.apply("small", at_most(16)).await.unwrap();
    fixture.once_answered(8, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_traps_blocks_or_is_skipped_as_its_on_error_defines() {
    let fixture = Fixture::start().await;
    // The policy answers the sample requests, and traps on a large object.
    let digests = fixture
        .modules(&[("trap.wasm", hostile::validation("(unreachable)"))])
        .await;
    let mut spec = of_map("Validation", "trap.wasm", &digests[0]);
    spec["onError"] = json!("Fail");
    fixture.apply("trap", spec.clone()).await.unwrap();
    fixture.once_in("trap", PolicyPhase::Active).await;
    let large = large_job();
    let refused = eventually("a large job is refused because of the trap", async || {
        Seen::when(fixture.webhooks.create(&large).await, Result::is_err)
    });
    let message = refused.await.unwrap_err().message;
    assert!(
        message.contains("the guest of IPUPolicy trap (validation)"),
        "{message}"
    );
    assert!(message.contains("The object is not the cause"), "{message}");
    spec["onError"] = json!("Ignore");
    fixture.apply("trap", spec).await.unwrap();
    eventually("a large job is admitted without it", async || {
        Seen::when(fixture.webhooks.create(&large).await, Result::is_ok)
    })
    .await
    .unwrap();
    let counted = |status: &IPUPolicyStatus| status.calls.failed > 0;
    fixture.once("trap", "counted as failing", counted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_refuses_everything_blocks_no_operator_writes_and_no_deletions() {
    let fixture = Fixture::start().await;
    let large = large_job();
    fixture.webhooks.create(&large).await.unwrap();
    let refuses = hostile::defaulting(hostile::REFUSE);
    let digests = fixture.modules(&[("refuse.wasm", refuses)]).await;
    let spec = of_map("Defaulting", "refuse.wasm", &digests[0]);
    fixture.apply("refuse", spec).await.unwrap();
    fixture.once_in("refuse", PolicyPhase::Active).await;
    let mut another = large.clone();
    another["metadata"]["name"] = json!("another");
    let jobs = fixture.webhooks.jobs();
    let refused = eventually("a large job is refused", async || {
        let made = fixture.webhooks.create(&another).await;
        if made.is_ok() {
            jobs.delete("another", &DeleteParams::default())
                .await
                .unwrap();
        }
        Seen::when(made, Result::is_err)
    });
    let message = refused.await.unwrap_err().message;
    assert!(message.contains("denied the request"), "{message}");

    // The writes of the operator itself to jobs, and deletions.
    let (name, params) = ("of-2", PatchParams::default());
    for finalizers in [json!(["example.com/held"]), json!(null)] {
        let patch = json!({"metadata": {"finalizers": finalizers}});
        jobs.patch(name, &params, &Patch::Merge(patch))
            .await
            .unwrap();
    }
    jobs.delete(name, &DeleteParams::default()).await.unwrap();
    assert!(jobs.get_opt(name).await.unwrap().is_none());
    let policies = fixture.policies();
    policies
        .delete("refuse", &DeleteParams::default())
        .await
        .unwrap();
    eventually("a large job is admitted again", async || {
        Seen::when(fixture.webhooks.create(&another).await, Result::is_ok)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_of_several_versions_in_quick_succession_counts() {
    let fixture = Fixture::start().await;
    for ipus in [4, 32, 16] {
        fixture.apply("small", at_most(ipus)).await.unwrap();
    }
    fixture.once_in("small", PolicyPhase::Active).await;
    fixture.once_answered(32, Some("32")).await;
    fixture.once_answered(16, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_guest_changes_nothing_and_is_promoted_by_equal_answers() {
    let fixture = Fixture::start().await;
    let mut spec = at_most(4);
    spec["mode"] = json!("Shadow");
    fixture.apply("small", spec.clone()).await.unwrap();
    fixture.once_in("small", PolicyPhase::Shadow).await;
    let differs = |status: &IPUPolicyStatus| {
        let shadow = status.shadow.clone().unwrap_or_default();
        shadow.different > 0 && !shadow.samples.is_empty()
    };
    let shown = eventually("the difference is shown", async || {
        fixture.ask(8).await.unwrap();
        let policy = fixture.policies().get("small").await.unwrap();
        Seen::when(policy.status.unwrap_or_default(), differs)
    });
    let shown = shown.await.shadow.unwrap();
    assert!(
        shown.samples[0].contains("it would have been refused for spec.ipusPerJobInstance"),
        "{:?}",
        shown.samples
    );

    spec["settings"] = json!({"maxIpusPerJob": 64});
    spec["replaces"] = json!("built-in");
    spec["shadow"] = json!({"promoteAfter": {"equal": 3}});
    fixture.apply("small", spec).await.unwrap();
    let promoted = eventually("it is promoted", async || {
        fixture.ask(8).await.unwrap();
        let policy = fixture.policies().get("small").await.unwrap();
        Seen::when(policy.status.unwrap_or_default(), |status| {
            status.phase == PolicyPhase::Active
        })
    });
    assert!(promoted.await.active.unwrap().promoted);
    fixture.once_answered(128, Some("64")).await;
}
