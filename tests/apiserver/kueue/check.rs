//! The AdmissionCheck `graphcore.ai/partition`: a job is admitted once its partition is formed, and
//! holds no quota while there is no free capacity for it.

use ipu_api::ipujob_status::JobState;
use serde_json::json;
use tests::kueue::objects::{admission_check, cluster_queue};
use tests::kueue::workload::Workload;

use super::fixture::{FLAVOR, Fixture, QUEUE, job};

/// Name of the check.
const CHECK: &str = "partition";

/// A queue with the check.
pub(super) async fn checked(ipus: u32) -> Fixture {
    let mut queue = cluster_queue(QUEUE, &[(FLAVOR, ipus)]);
    let checks = json!([{"name": CHECK}]);
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
    let mut fixture = Fixture::with_queue(queue).await;
    fixture.run_pods(false);
    fixture.apply(&admission_check(CHECK)).await;
    fixture
}

/// Returns the state of the check, and its message.
pub(super) fn answer(workload: &Workload) -> (&str, &str) {
    workload.check(CHECK).map_or(("", ""), |check| {
        let state = check["state"].as_str().unwrap_or_default();
        (state, check["message"].as_str().unwrap_or_default())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_admitted_once_its_partition_is_formed() {
    let mut fixture = checked(16).await;
    fixture.hold(true, false);
    fixture.submit("one", 4).await;
    fixture.once_taken(4).await;
    let reserved = fixture
        .once("one", "says what it waits for", |one| {
            let (state, message) = answer(one);
            one.is("QuotaReserved") && state == "Pending" && !message.is_empty()
        })
        .await;
    assert!(!reserved.is("Admitted"));
    fixture.installation.once("one", JobState::Suspended).await;
    let pod = fixture.installation.pods().get_opt("one-worker-0").await;
    assert_eq!(pod.unwrap().map(|pod| pod.metadata.name), None);

    // A killed operator continues with the same partition.
    fixture.kill_operator();
    fixture.hold(false, false);
    fixture.start_operator().await;
    fixture.once_running("one").await;
    let admitted = fixture.once("one", "is admitted", |one| one.is("Admitted"));
    assert_eq!(answer(&admitted.await).0, "Ready");
    assert_eq!(fixture.most_taken(), 4);

    // Evicted while its partition forms.
    fixture.hold(true, false);
    fixture.submit("two", 4).await;
    fixture.once_taken(8).await;
    fixture.set_active("two", false).await;
    fixture
        .once("two", "is evicted", |one| one.is("Evicted"))
        .await;
    // The V-IPU controller replies late. Until then the state of the partition is unknown.
    fixture.hold(false, false);
    fixture.once_released("two").await;
    assert_eq!(fixture.taken(), 4);
    fixture.end("one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_can_never_be_served_is_deactivated_and_says_why() {
    // Both V-IPU controllers have 64 IPUs each, and the instances of a job with a launcher start
    // together.
    let fixture = checked(4 * 64).await;
    let mut large = job("large", 64);
    large["spec"]["jobInstances"] = json!(3);
    large["spec"]["launcher"] = json!({"command": ["mpirun"]});
    fixture.installation.submit(&large).await;
    let why = "can ever serve 3 partitions of 64 IPUs";
    let rejected = fixture
        .once("large", "is deactivated, and holds no quota", |one| {
            let is_active = &one.0.data["spec"]["active"];
            *is_active == json!(false) && one.is("Evicted") && !one.holds_quota()
        })
        .await;
    assert_eq!(rejected.reason("Evicted"), "DeactivatedDueToAdmissionCheck");
    let said = rejected.message("Evicted");
    assert!(
        said.contains("Rejected state") && said.contains(why),
        "{said}"
    );
    fixture.once_released("large").await;
    fixture.once_reserved(0).await;
    assert_eq!(fixture.taken(), 0);
    // The condition of the job and its event both have the reason.
    let parts = ["Type: QuotaReserved", why, "QueueStopped"];
    let described = fixture.installation.described("large", &parts).await;
    assert!(described.matches(why).count() > 1, "{described}");

    // Workers of a job with a launcher cannot change, so the user creates the job again, smaller.
    fixture.delete("large").await;
    fixture.once_gone("large").await;
    large["spec"]["jobInstances"] = json!(2);
    fixture.installation.submit(&large).await;
    fixture.once_running("large").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_free_capacity_releases_its_quota_and_is_tried_again() {
    // Both V-IPU controllers have 64 IPUs each.
    let fixture = checked(3 * 64).await;
    for job in ["one", "two"] {
        fixture.submit(job, 64).await;
        fixture.once_running(job).await;
    }
    fixture.submit("three", 64).await;
    let evicted = fixture
        .once("three", "is evicted by the check", |one| {
            one.is("Evicted") && one.reason("Evicted") == "AdmissionCheck"
        })
        .await;
    assert_ne!(evicted.message("Evicted"), "");
    fixture.once_released("three").await;
    fixture.once_reserved(128).await;
    // Kueue checks again after the delay that the operator named.
    fixture.end("one").await;
    fixture.once_running("three").await;
    fixture.end("two").await;
    fixture.end("three").await;
}
