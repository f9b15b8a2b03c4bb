//! The AdmissionCheck for Pods that request IPUs themselves, under Kueue's own integration: their
//! partitions are created before their admission, and they take them over.

use cluster::wait::{Seen, eventually};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::json;
use tests::kueue::objects::{IPUS, QUEUE_LABEL};
use tests::kueue::workload::{Workload, of_owner};

use super::check::{answer, checked};
use super::fixture::{Fixture, NAMESPACE, QUEUE};
use super::pods::{ADMISSION, gates, once_running, pod};

async fn submit(fixture: &Fixture, name: &str, ipus: u32) {
    let create = PostParams::default();
    let created = fixture
        .installation
        .pods()
        .create(&create, &pod(name, ipus))
        .await;
    created.unwrap();
}

/// A queued Job of a Pod with this number of IPUs. No controller of Jobs runs, so nothing creates
/// the Pod.
async fn submit_job(fixture: &Fixture, name: &str, ipus: u32) {
    let job = json!({
        "metadata": {"name": name, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "program:1", "resources": {"limits": {IPUS: ipus.to_string()}},
            }],
        }}},
    });
    let job: Job = serde_json::from_value(job).unwrap();
    let jobs: Api<Job> = Api::namespaced(fixture.installation.client.clone(), NAMESPACE);
    jobs.create(&PostParams::default(), &job).await.unwrap();
}

/// The Workload of an object of this kind and name, once it `is_so`.
async fn once(
    fixture: &Fixture,
    (kind, name): (&str, &str),
    what: &str,
    is_so: impl Fn(&Workload) -> bool,
) -> Workload {
    eventually(
        &format!("the Workload of {kind} {name} {what}"),
        async || {
            let found = of_owner(&fixture.installation.client, NAMESPACE, (kind, name)).await;
            Seen::first(found, &is_so)
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_admitted_once_its_partition_is_formed_and_takes_it_over() {
    let mut fixture = checked(16).await;
    fixture.hold(true, false);
    submit(&fixture, "one", 4).await;
    fixture.once_taken(4).await;
    let waiting = once(&fixture, ("Pod", "one"), "says what it waits for", |one| {
        one.is("QuotaReserved") && answer(one).0 == "Pending" && !answer(one).1.is_empty()
    });
    assert!(!waiting.await.is("Admitted"));
    let one = fixture.pod("one").await;
    assert!(gates(&one).contains(&ADMISSION), "{one:#?}");

    // The operator is killed in the middle, and continues with the same partition.
    fixture.kill_operator();
    fixture.hold(false, false);
    fixture.start_operator().await;
    once_running(&fixture, "one").await;
    let partitions = fixture.installation.partitions().await;
    let [(_, id)] = &partitions[..] else {
        panic!("{partitions:?}");
    };
    let one = fixture.pod("one").await;
    assert_eq!(one.labels().get("graphcore.ai/partition-id"), id.as_ref());
    assert_eq!(fixture.most_taken(), 4);
    fixture.delete_pod("one").await;
    fixture.once_taken(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_free_capacity_releases_its_quota_and_is_tried_again() {
    // Both V-IPU controllers have 64 IPUs each.
    let fixture = checked(3 * 64).await;
    for name in ["one", "two"] {
        submit(&fixture, name, 64).await;
        once_running(&fixture, name).await;
    }
    submit(&fixture, "three", 64).await;
    let evicted = once(
        &fixture,
        ("Pod", "three"),
        "is evicted by the check",
        |one| one.reason("Evicted") == "AdmissionCheck",
    );
    assert_ne!(evicted.await.message("Evicted"), "");
    fixture.installation.ends("one").await;
    once_running(&fixture, "three").await;
    eventually("there are two partitions", async || {
        Seen::when(fixture.installation.partitions().await, |all| {
            all.len() == 2
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_can_never_be_created_are_rejected_with_the_reason() {
    let fixture = checked(3 * 64).await;
    // The webhook refuses a Pod. Nothing refuses the Job, whose Pods would be refused later.
    let create = PostParams::default();
    let refused = fixture
        .installation
        .pods()
        .create(&create, &pod("large", 128))
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("maxIpusPerJob"), "{refused}");

    submit_job(&fixture, "large", 128).await;
    let rejected = once(
        &fixture,
        ("Job", "large"),
        "is deactivated, and holds no quota",
        |one| {
            let is_active = &one.0.data["spec"]["active"];
            *is_active == json!(false) && one.is("Evicted") && !one.holds_quota()
        },
    )
    .await;
    assert_eq!(rejected.reason("Evicted"), "DeactivatedDueToAdmissionCheck");
    let message = rejected.message("Evicted");
    for part in [
        "Rejected state",
        "requests 128 IPUs, which is more than the 64 IPUs that one Pod may have here",
    ] {
        assert!(message.contains(part), "{message}");
    }
    fixture.once_reserved(0).await;
    assert_eq!(fixture.most_taken(), 0, "no partition was created");
}
