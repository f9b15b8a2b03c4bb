//! A job of the size that is shown as the largest fit gets its partition.

use serde_json::{Value, json};

use super::fixture::{Explained, job};
use super::world::{fragment, reserve, set_policy, use_up};

/// Waits until all places show this size while a job waits, and until a job of this size is served
/// then.
async fn runs(explained: &Explained, waiting: &Value, ipus: u32) {
    explained.submit(waiting).await;
    let name = waiting["metadata"]["name"].as_str().unwrap();
    let reader = &explained.reader;
    reader.why_names_fit(name, ipus).await;
    is_queried(explained, ipus).await;
    let is_named = |queue: &Value| queue["largestFit"]["ipus"] == ipus;
    reader.queue(is_named).await;
    explained.submit(&job("fits", ipus)).await;
    explained.once_served("fits").await;
}

/// Waits until a query returns this size.
async fn is_queried(explained: &Explained, ipus: u32) {
    let is_named = |answer: &Value| answer["largestSize"] == ipus;
    let what = format!("names {ipus} IPUs");
    let (reader, query) = (&explained.reader, json!({"size": 1}));
    reader.query(&what, &query, is_named).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_the_largest_free_size_runs() {
    let mut explained = Explained::prepare(&[16, 8, 4]).await;
    explained.start().await;
    let fixture = &explained.fixture;
    fixture.cordon(&[&fixture.pods[0]]).await;
    use_up(&explained, "other", 4).await;
    // 4 IPUs are free on each of the two others.
    runs(&explained, &job("waits", 8), 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_the_largest_unreserved_size_runs() {
    let mut explained = Explained::prepare(&[8, 16]).await;
    explained.fixture.backfill_limit = 1;
    explained.start().await;
    use_up(&explained, "on-first", 4).await;
    use_up(&explained, "on-second", 8).await;
    // 8 IPUs are free on the second one, which is reserved for the large request.
    reserve(&explained, 16).await;
    runs(&explained, &job("waits", 16), 4).await;
    explained
        .once_partition_waits("waits", "is reserved for default/large")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_the_largest_contiguous_size_runs() {
    let mut explained = Explained::prepare(&[8]).await;
    explained.start().await;
    fragment(&explained).await;
    runs(&explained, &job("waits", 4), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_the_largest_size_within_a_quota_runs() {
    let mut explained = Explained::prepare(&[16]).await;
    let settings = json!({"quota": {"ipus": 8}});
    set_policy(&mut explained, "namespace-quota", settings).await;
    explained.start().await;
    use_up(&explained, "other", 4).await;
    // 12 IPUs are free. The namespace may use 4 of them.
    is_queried(&explained, 4).await;
    explained.submit(&job("fits", 4)).await;
    explained.once_served("fits").await;
}
