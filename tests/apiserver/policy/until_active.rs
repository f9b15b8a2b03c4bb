//! Requests wait for a new policy that says so, until it is active.

use cluster::wait::{Seen, eventually};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::PolicyPhase;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::fixture::{Fixture, built_in, job, of_map};

/// A job with a label that the policy selects.
fn selected(ipus: u32) -> Value {
    let mut selected = job(ipus);
    selected["metadata"]["labels"] = json!({"rule": "new"});
    selected
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_wait_for_a_new_policy_until_it_is_active() {
    let fixture = Fixture::start().await;
    fixture.webhooks.create(&selected(2)).await.unwrap();
    // Its ConfigMap does not exist yet.
    let module = built_in("validation.wasm");
    let digest = digest_of(&module).to_string();
    let mut spec = of_map("Validation", "late.wasm", &digest);
    spec["untilActive"] = json!("Wait");
    spec["onError"] = json!("Ignore");
    spec["settings"] = json!({"maxIpusPerJob": 4});
    spec["match"] = json!({"objectSelector": {"matchLabels": {"rule": "new"}}});
    fixture.apply("new", spec).await.unwrap();
    let user = fixture.webhooks.without_retries().await;
    let waits = eventually("a job that the policy selects waits", async || {
        let dry = user.create_dry(&selected(8)).await;
        Seen::when(dry.err(), Option::is_some)
    });
    let status = waits.await.unwrap();
    assert_eq!((status.code, &*status.reason), (429, "TooManyRequests"));
    let details = status.details.unwrap();
    assert_eq!(details.retry_after_seconds, 2);
    for part in [
        "IPUPolicy new is not active yet",
        "spec.untilActive is Wait",
    ] {
        assert!(status.message.contains(part), "{part}: {}", status.message);
    }
    // Nothing else waits: jobs that it does not select, finalizers, and deletion.
    fixture.ask(8).await.unwrap();
    let jobs = fixture.webhooks.jobs();
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let params = PatchParams::default();
    jobs.patch("of-2", &params, &finalizers).await.unwrap();
    jobs.delete("of-2", &DeleteParams::default()).await.unwrap();
    let loading = fixture.once_in("new", PolicyPhase::Loading).await;
    let words = "no version is active, so matching requests wait";
    assert!(loading.message.contains(words), "{}", loading.message);

    fixture.modules(&[("late.wasm", module)]).await;
    fixture.once_in("new", PolicyPhase::Active).await;
    for (ipus, words) in [(8, Some("8")), (4, None)] {
        eventually("the policy decides", async || {
            let dry = user.create_dry(&selected(ipus)).await;
            Seen::when(dry, |dry| match (dry, words) {
                (Err(status), Some(words)) => status.code == 422 && status.message.contains(words),
                (dry, words) => dry.is_ok() && words.is_none(),
            })
        })
        .await
        .ok();
    }
}
