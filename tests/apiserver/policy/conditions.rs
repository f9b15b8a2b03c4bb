//! Match conditions that no request can satisfy, and those that Kubernetes documents.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupolicy::PolicyPhase;
use serde_json::{Value, json};

use super::fixture::{Fixture, at_most};

fn at_most_if(ipus: u32, expression: &str) -> Value {
    let mut spec = at_most(ipus);
    spec["match"] = json!({"matchConditions": [{"name": "mine", "expression": expression}]});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_no_request_satisfies_is_refused_and_blocks_nobody() {
    let fixture = Fixture::start().await;
    fixture.apply("small", at_most(4)).await.unwrap();
    fixture.once_in("small", PolicyPhase::Active).await;
    for (expression, words) in [
        ("team.metadata.labels.tier == 'prod'", "variable team,"),
        (
            "object.metadata.name.lowerAscii() == 'a'",
            "function lowerAscii,",
        ),
        ("request.options.fieldManager == 'a'", "request.options,"),
        ("object.spec.ipusPerJobInstance > 4", "cannot be evaluated"),
    ] {
        let spec = at_most_if(16, expression);
        fixture.apply("small", spec).await.unwrap();
        let refused = fixture.once_in("small", PolicyPhase::Refused).await;
        for part in [words, expression, "previous version stays active"] {
            assert!(
                refused.message.contains(part),
                "{part}: {}",
                refused.message
            );
        }
        fixture.once_answered(8, Some("8")).await;
        fixture.once_answered(4, None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_reads_the_resource_and_the_namespace() {
    let fixture = Fixture::start().await;
    let expression = "request.resource.resource == 'ipujobs' && request.kind.kind == 'IPUJob' && \
                      namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == request.namespace";
    fixture
        .apply("small", at_most_if(4, expression))
        .await
        .unwrap();
    fixture.once_in("small", PolicyPhase::Active).await;
    fixture.once_answered(8, Some("8")).await;
    let others = at_most_if(4, "request.resource.resource == 'pods'");
    fixture.apply("small", others).await.unwrap();
    fixture.once_in("small", PolicyPhase::Active).await;
    eventually("the policy is for Pods only", async || {
        Seen::when(fixture.ask(8).await, Result::is_ok)
    })
    .await
    .unwrap();
}
