//! What a rule depends on is reviewed when it changes: the spec, the number of instances through
//! the scale, and the labels that rules read. What was there before does not deny an update.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupolicy::PolicyPhase;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tests::guests::hostile;

use super::fixture::{Fixture, job, of_map};

/// The label that decides about the queue of a job. The chart names it among those that rules
/// depend on.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Activates a policy that refuses IPUJobs for which this CEL expression is true.
async fn refuse_where(fixture: &Fixture, expression: &str) {
    let modules = [("refusal.wasm", hostile::refusal())];
    let digests = fixture.modules(&modules).await;
    let mut spec = of_map("Validation", "refusal.wasm", &digests[0]);
    let condition = json!({"name": "refused", "expression": expression});
    spec["match"] = json!({"matchConditions": [condition]});
    fixture.apply("rule", spec).await.unwrap();
    fixture.once_in("rule", PolicyPhase::Active).await;
}

/// Waits until an update is refused, because the webhooks follow a policy with a short delay. Asks
/// by a dry run.
async fn once_refused(fixture: &Fixture, name: &str, change: &Value) {
    eventually("the policy refuses the change", async || {
        let dry_run = PatchParams::default().dry_run();
        let jobs = fixture.webhooks.jobs();
        let changed = jobs.patch(name, &dry_run, &Patch::Merge(change)).await;
        Seen::when(changed.err(), |error| is_refusal(error.as_ref()))
    })
    .await;
}

fn is_refusal(error: Option<&kube::Error>) -> bool {
    matches!(error, Some(kube::Error::Api(status)) if status.code == 422)
}

/// Changes the number of instances as `kubectl scale` does.
async fn scale(fixture: &Fixture, name: &str, instances: u32) -> Option<kube::Error> {
    let scaled = Patch::Merge(json!({"spec": {"replicas": instances}}));
    let jobs = fixture.webhooks.jobs();
    let params = PatchParams::default();
    jobs.patch_scale(name, &params, &scaled).await.err()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_instances_are_reviewed_through_the_scale_as_in_the_spec() {
    let fixture = Fixture::start().await;
    fixture.webhooks.create(&job(2)).await.unwrap();
    refuse_where(
        &fixture,
        "object.spec.jobInstances > 2 && request.subResource == 'scale'",
    )
    .await;
    eventually("the scale is refused", async || {
        Seen::when(scale(&fixture, "of-2", 3).await, |error| {
            is_refusal(error.as_ref())
        })
    })
    .await;
    let instances = async || {
        let job = fixture.webhooks.jobs().get("of-2").await.unwrap();
        job.spec.job_instances
    };
    assert_eq!(instances().await, 1);
    for allowed in [0, 2, 0] {
        assert!(
            scale(&fixture, "of-2", allowed).await.is_none(),
            "{allowed}"
        );
        assert_eq!(instances().await, allowed.cast_signed());
    }
    // The rules of the operator hold as well: this job is too large for the release.
    let error = scale(&fixture, "of-2", 100_000).await;
    assert!(is_refusal(error.as_ref()), "{error:?}");
    // Nobody needs the webhooks to give IPUs back, or for a job that does not exist.
    let error = scale(&fixture, "missing", 1).await;
    let is_missing = matches!(&error, Some(kube::Error::Api(status)) if status.code == 404);
    assert!(is_missing, "{error:?}");
    assert!(scale(&fixture, "of-2", 1).await.is_none());
    let mut fixture = fixture;
    fixture.webhooks.stop();
    assert!(scale(&fixture, "of-2", 0).await.is_none());
    let error = scale(&fixture, "of-2", 1).await.unwrap().to_string();
    assert!(error.contains("vscale.graphcore.ai"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_that_rules_read_are_reviewed_and_no_others() {
    let fixture = Fixture::start().await;
    let mut queued = job(2);
    queued["metadata"]["labels"] = json!({QUEUE: "team-a", "team": "a"});
    fixture.webhooks.create(&queued).await.unwrap();
    let rule = format!("!(has(object.metadata.labels) && '{QUEUE}' in object.metadata.labels)");
    refuse_where(&fixture, &rule).await;
    let without = json!({"metadata": {"labels": {QUEUE: null}}});
    once_refused(&fixture, "of-2", &without).await;
    let other = json!({"metadata": {"labels": {QUEUE: "team-b", "team": "b"}}});
    fixture.webhooks.patch("of-2", &other).await.unwrap();
    // GitOps tools label while no operator answers; deletion and finalizers are free.
    let mut fixture = fixture;
    fixture.webhooks.stop();
    let tool = json!({"metadata": {
        "labels": {"argocd.argoproj.io/instance": "x", "team": null},
        "annotations": {"a/b": "c"},
        "finalizers": null,
    }});
    fixture.webhooks.patch("of-2", &tool).await.unwrap();
    let refused = fixture.webhooks.patch("of-2", &without).await;
    let error = refused.unwrap_err();
    assert!(
        error.message.contains("vipujob.graphcore.ai"),
        "{}",
        error.message
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_newer_than_a_job_denies_no_update_but_one_that_starts_more() {
    let fixture = Fixture::start().await;
    fixture.webhooks.create(&job(2)).await.unwrap();
    refuse_where(&fixture, "true").await;
    eventually("a new job is refused", async || {
        let asked = fixture.webhooks.create_dry(&job(4)).await;
        Seen::when(asked.err(), |error| {
            error.as_ref().is_some_and(|status| status.code == 422)
        })
    })
    .await;
    for change in [
        json!({"metadata": {"labels": {QUEUE: "team-a"}}}),
        json!({"spec": {"cleanPodPolicy": "All"}}),
        json!({"spec": {"suspend": true}}),
    ] {
        let changed = fixture.webhooks.patch("of-2", &change).await.unwrap();
        let warned = changed
            .warnings
            .iter()
            .any(|warning| warning.contains("was so before"));
        assert!(warned, "{change}: {:?}", changed.warnings);
    }
    for change in [
        json!({"spec": {"suspend": false}}),
        json!({"spec": {"jobInstances": 2}}),
    ] {
        let refused = fixture.webhooks.patch("of-2", &change).await.unwrap_err();
        assert_eq!(refused.code, 422, "{change}: {}", refused.message);
    }
    let error = scale(&fixture, "of-2", 2).await;
    assert!(is_refusal(error.as_ref()), "{error:?}");
}
