//! Failures of a guest, and which of them return to the previous version of a policy.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupolicy::{IPUPolicyStatus, PolicyPhase};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::{Value, json};
use tests::guests::hostile;

use super::fixture::{Fixture, large_job, of_map};

/// Calls after which the first version would be active again.
const FAILURES: i64 = 20;

/// Creates a namespace.
async fn namespace(fixture: &Fixture, name: &str) {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let api = Api::<Namespace>::all(fixture.client.clone());
    api.create(&PostParams::default(), &namespace)
        .await
        .unwrap();
}

/// Requests a job that the guest cannot process. It is refused.
async fn fail(fixture: &Fixture, namespace: &str, dry_run: bool) {
    let tenant = fixture.webhooks.in_namespace(namespace);
    let job = large_job();
    let refused = if dry_run {
        tenant.create_dry(&job).await
    } else {
        tenant.create(&job).await
    };
    let message = refused.unwrap_err().message;
    assert!(message.contains("the guest of IPUPolicy trap"), "{message}");
}

/// Activates two versions. The second one traps on large jobs.
async fn second_version(fixture: &Fixture, spec: &Value) {
    let first = json!({"hook": "Validation", "module": {"image": {"file": "validation.wasm"}}});
    fixture.apply("trap", first).await.unwrap();
    fixture.once_in("trap", PolicyPhase::Active).await;
    fixture.apply("trap", spec.clone()).await.unwrap();
    let ready = |status: &IPUPolicyStatus| {
        let mut conditions = status.conditions.iter();
        let generation = status.active.as_ref().map(|active| active.generation);
        generation == Some(2)
            && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    fixture
        .once("trap", "ready in its second version", ready)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_one_namespace_nor_one_user_rolls_a_policy_back() {
    let fixture = Fixture::start().await;
    let trap = [("trap.wasm", hostile::validation("(unreachable)"))];
    let digests = fixture.modules(&trap).await;
    let mut spec = of_map("Validation", "trap.wasm", &digests[0]);
    spec["rollback"] = json!({"when": "CallsFail"});
    second_version(&fixture, &spec).await;
    let tenants = ["tenant-0", "tenant-1", "tenant-2"];
    for tenant in tenants {
        namespace(&fixture, tenant).await;
    }

    let mut failed = 0;
    let steps = [
        (&tenants[..], true),
        (&tenants[..1], false),
        (&tenants[..], false),
    ];
    for (namespaces, dry_run) in steps {
        for _ in 0..FAILURES {
            for namespace in namespaces {
                fail(&fixture, namespace, dry_run).await;
                failed += 1;
            }
        }
        let counted = |status: &IPUPolicyStatus| status.calls.failed >= failed;
        let status = fixture.once("trap", "counted as failing", counted).await;
        assert_eq!(
            (status.phase, status.rolled_back),
            (PolicyPhase::Active, None)
        );
    }

    // Another user meets the same fault.
    let bob = fixture.webhooks.as_user("bob").await;
    eventually("the first version is active again", async || {
        // The first version admits the job.
        let _ = bob.in_namespace(tenants[1]).create(&large_job()).await;
        let policy = fixture.policies().get("trap").await.unwrap();
        Seen::when(policy.status.unwrap_or_default(), |status| {
            status.phase == PolicyPhase::RolledBack
        })
    })
    .await;
}
