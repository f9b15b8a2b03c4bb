//! A quota of Kueue, for which a job waits before it requests a partition.

use serde_json::{Value, json};

use super::fixture::{Reader, jobs, once_condition};
use crate::kueue::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_of_kueue() {
    let fixture = Fixture::with_quota(4).await;
    fixture.submit("first", 4).await;
    fixture.submit("train", 4).await;
    fixture.once_waiting("train").await;

    let text = "insufficient unused quota";
    // The reason is Kueue's, and depends on its version.
    let condition = ["QuotaReserved", "", text];
    let client = fixture.installation.client.clone();
    once_condition(&jobs(client), "train", condition).await;
    let reader = Reader::new(&fixture.installation.plane.kubeconfig(), fixture.rest()).await;
    let parts = [
        "Queue of Kueue:\n  team: QuotaReserved is False",
        text,
        "Kueue decides when the job starts: wait, or ask the admin of the queue team",
    ];
    reader.why("train", &parts).await;
    reader.queue_blocks("train", text).await;
    // The V-IPU controllers have free capacity.
    let is_placed = |answer: &Value| answer["decision"] == "try";
    let query = json!({"size": 4});
    reader.query("it would fit", &query, is_placed).await;
}
