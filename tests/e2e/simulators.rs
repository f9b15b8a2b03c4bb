//! Actions of trials on a simulated V-IPU controller, except faults.

use cluster::http;
use harness::demo::{Controller, partitions_of};
use libtest_mimic::Failed;
use serde_json::json;

/// Prefix of the ids of partitions that a trial has created by hand.
const BY_HAND: &str = "by-hand-";

/// Creates a partition by hand, so that its IPUs are not free.
pub(crate) async fn occupy(controller: &Controller, ipus: u32) -> Result<(), Failed> {
    let wanted = json!({"id": format!("{BY_HAND}{ipus}"), "ipus": ipus}).to_string();
    http::request("POST", &url(controller, "partitions"), &wanted).await?;
    Ok(())
}

/// Removes all partitions that a trial has created by hand.
pub(crate) async fn vacate(controller: &Controller) -> Result<(), Failed> {
    for id in partitions_of(controller).await? {
        if id.starts_with(BY_HAND) {
            let partition = url(controller, &format!("partitions/{id}"));
            http::request("DELETE", &partition, "").await?;
        }
    }
    Ok(())
}

/// Sets the time that each new partition takes to form.
pub(crate) async fn form_in(controller: &Controller, milliseconds: u64) -> Result<(), Failed> {
    let timings = json!({"forming_ms": milliseconds}).to_string();
    http::request("PUT", &url(controller, "timings"), &timings).await?;
    Ok(())
}

/// Ends all faults and changes of a trial.
pub(crate) async fn reset(controller: &Controller) -> Result<(), Failed> {
    http::request("DELETE", &url(controller, "faults"), "").await?;
    http::request("PUT", &url(controller, "timings"), "{}").await?;
    vacate(controller).await
}

fn url(controller: &Controller, path: &str) -> String {
    format!("http://{}/{path}", controller.faults_at)
}
