//! A job of 256 workers: all objects respect their size limits, events and status stay short, and
//! the test prints the time that the control plane takes.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

use cluster::wait::{Seen, eventually};
use ipu_api::naming;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Api, ListParams};
use serde_json::json;
use tests::described::{COMPLETED, Described, Expected, RUNNING};

use crate::described::once_described;
use crate::job::parallel;
use crate::job_fixture::JobFixture;

/// Number of partitions. Each has as many workers as a partition can have IPUs.
const INSTANCES: u32 = 4;
const WORKERS: u32 = 256;

/// Most events of one reason: one for each instance and one for the launcher, regardless of the
/// number of Pods.
const EVENTS: usize = INSTANCES as usize + 1;

/// Events that a user reads at its end: workers and launcher were created together, and each
/// partition was released.
const ENDED: Expected = Expected {
    events: &[
        ("SuccessfulCreate", 1),
        ("IPUJobSucceeded", 1),
        ("PartitionReleased", INSTANCES as usize),
    ],
    ..COMPLETED
};

/// Longest message of an event, in bytes: a few Pods by name, and the number of the others.
const MESSAGE: usize = 200;

#[tokio::test]
async fn a_job_of_256_workers_runs_to_its_end_and_is_deleted() {
    let mut fixture = JobFixture::new("large").await;
    fixture.start();
    let mut job = parallel("large");
    job["spec"]["jobInstances"] = json!(INSTANCES);
    job["spec"]["ipusPerJobInstance"] = json!("64");
    job["spec"]["workersPerJobInstance"] = json!("64");
    job["spec"]["cleanPodPolicy"] = json!("All");
    let begun = Instant::now();
    // The test runner captures what the macros print, and shows it if a test fails.
    let passed = |what: &str| {
        let line = format!("{WORKERS} workers: {what} after {:.1?}\n", begun.elapsed());
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    };
    fixture.submit(&job).await;
    for slot in 0..INSTANCES {
        fixture.partition_ready(slot).await;
    }
    // The launcher, too.
    once_there(&fixture, WORKERS as usize + 1).await;
    passed("all Pods made");
    for index in 0..WORKERS {
        fixture.pod_runs(&naming::worker("large", index)).await;
    }
    fixture.pod_runs("large-launcher").await;
    fixture
        .row("large", "Running 4 4", "Successfully reconciled IPUJob")
        .await;
    passed("running");
    let (running, text) = once_described(&fixture, "large", &RUNNING).await;
    is_short(&running, &text);

    let roles: Api<Role> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let rules = roles.get("large-launcher").await.unwrap().rules.unwrap();
    for rule in rules {
        let named = rule.resource_names.unwrap_or_default();
        let is_own = rule.verbs == ["watch"] && named == ["large-launcher"];
        assert!(
            is_own || named.len() == WORKERS as usize,
            "a right that is bound neither to the workers nor to the launcher: {named:?}"
        );
    }

    fixture.pod_ends("large-launcher", 0).await;
    fixture
        .row("large", "Completed 0 4", "All instances done")
        .await;
    once_there(&fixture, 0).await;
    passed("completed, and all Pods gone");
    let (completed, text) = once_described(&fixture, "large", &ENDED).await;
    is_short(&completed, &text);
    let created = completed.messages("SuccessfulCreate");
    let names_some = |message: &&str| message.contains("large-worker-") && message.contains("more");
    assert!(created.iter().any(names_some), "{text}");
    fixture.delete("large").await;
    fixture.once_gone("large").await;
    passed("gone");
    assert!(fixture.partitions().await.is_empty());
    fixture.kill().await;
}

/// The events of a job with many Pods name a few of them, as those of a small job.
fn is_short(described: &Described, text: &str) {
    let mut counts = BTreeMap::<&str, usize>::new();
    for event in &described.events {
        *counts.entry(&event.reason).or_default() += 1;
        assert!(event.message.len() <= MESSAGE, "{event:?}");
    }
    assert!(counts.values().all(|count| *count <= EVENTS), "{text}");
}

/// Waits until this number of Pods exists.
async fn once_there(fixture: &JobFixture, count: usize) {
    eventually(&format!("{count} Pods to be there"), async || {
        let pods = fixture.pods().list_metadata(&ListParams::default()).await;
        Seen::when(pods.unwrap().items.len(), |found| *found == count)
    })
    .await;
}
