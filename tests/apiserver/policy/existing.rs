//! A policy in mode Shadow reports exactly the existing objects that it refuses once it is
//! enforced.

use std::collections::BTreeSet;

use cluster::wait::{Seen, eventually};
use ipu_api::ipupolicy::{ExistingObjects, IPUPolicyStatus, PolicyPhase, ShadowCounts};
use serde_json::{Value, json};

use super::audit::{create_all, create_namespace, job, pod};
use super::fixture::{Fixture, at_most};

/// The built-in rule with another limit, for the namespaces of the trial.
fn rule(mode: &str, ipus: u32) -> Value {
    let mut rule = at_most(ipus);
    rule["mode"] = json!(mode);
    rule["match"] = json!({"namespaceSelector": {"matchLabels": {"tier": "trial"}}});
    rule
}

/// Applies a rule in mode Shadow. Returns its review of the existing objects.
async fn review(fixture: &Fixture, ipus: u32) -> ExistingObjects {
    let applied = fixture.apply("rule", rule("Shadow", ipus)).await.unwrap();
    let generation = applied.metadata.generation;
    let is_reviewed = |status: &IPUPolicyStatus| {
        let review = status.existing.as_ref();
        review.map(|review| review.generation) == generation
    };
    let status = fixture.once("rule", "reviewed", is_reviewed).await;
    let counts = status.shadow.unwrap_or_default();
    assert_eq!(counts, ShadowCounts::default(), "no request was compared");
    status.existing.unwrap()
}

fn names(review: &ExistingObjects) -> BTreeSet<String> {
    let samples = review.samples.iter();
    samples
        .map(|sample| format!("{} {}/{}", sample.kind, sample.namespace, sample.name))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_policy_reports_the_objects_that_it_refuses_once_it_is_enforced() {
    let fixture = Fixture::start().await;
    let client = fixture.client.clone();
    create_namespace(&client).await;
    let objects: Vec<_> = (0..8).map(job).chain((0..4).map(pod)).collect();
    assert!(create_all(&client, &objects, false).await.is_empty());

    let first = review(&fixture, 2).await;
    assert_eq!((first.reviewed, first.refused, first.failed), (9, 5, 0));
    let message = &first.samples[0].message;
    assert!(
        message.starts_with("spec.ipusPerJobInstance: "),
        "{message}"
    );
    // A change of the settings is reviewed anew.
    let second = review(&fixture, 4).await;
    assert_eq!((second.reviewed, second.refused), (9, 2));
    let expected = ["IPUJob trial/job-3", "Pod trial/pod-3"].map(str::to_owned);
    assert_eq!(names(&second), expected.into());

    fixture.apply("rule", rule("Enforce", 2)).await.unwrap();
    let active = fixture.once_in("rule", PolicyPhase::Active).await;
    assert_eq!(active.existing, None);
    let named = names(&first);
    eventually("the rule refuses what the status names", async || {
        let refused = create_all(&client, &objects, true).await;
        Seen::when(refused, |refused| *refused == named)
    })
    .await;
}
