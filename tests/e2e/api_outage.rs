//! The API server does not respond for more than a minute: running Pods continue, and the operator
//! notices Pods that ended meanwhile.

use std::time::Duration;

use cluster::fault::Stopped;
use cluster::wait::{Seen, until};
use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use serde_json::json;
use tests::described::{COMPLETED, RUNNING};

use crate::described::once_described;
use crate::failing_pods::job;
use crate::fixture::{Fixture, PATIENCE};
use crate::pods::runs;

/// Duration of the outage. Every replica loses its Lease during it.
const OUTAGE: Duration = Duration::from_secs(70);

/// One job keeps its Pod and partition, one that ends during the outage is Completed afterwards,
/// and a new one is accepted and runs. No partition is reset, no object is left, and no job shows a
/// warning that does not concern it.
pub(crate) fn is_survived(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let goes_on =
            json!({"command": ["bash", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]});
        let ends = json!({"command": ["sleep", "20"]});
        fixture.create(&job("goes-on", json!({}), goes_on)?).await?;
        let before = runs(fixture, "goes-on-worker-0", None).await?;
        fixture.create(&job("ends", json!({}), ends)?).await?;
        runs(fixture, "ends-worker-0", None).await?;
        let ids = ids(fixture, "goes-on").await?;

        let stopped = Stopped::daemon(&fixture.settings.run, "kube-apiserver")?;
        // This pause is the fault itself. It waits for no condition.
        tokio::time::sleep(OUTAGE).await;
        drop(stopped);

        fixture.once("ends", JobState::Completed).await?;
        fixture.webhooks_answer().await?;
        fixture.create(&job("later", json!({}), json!({}))?).await?;
        fixture.once("later", JobState::Completed).await?;
        assert_eq!(runs(fixture, "goes-on-worker-0", None).await?, before);
        assert_eq!(self::ids(fixture, "goes-on").await?, ids);
        fixture.once("goes-on", JobState::Running).await?;
        for (name, expected) in [
            ("goes-on", &RUNNING),
            ("ends", &COMPLETED),
            ("later", &COMPLETED),
        ] {
            once_described(fixture, name, expected).await?;
        }
        fixture.clear().await
    })
}

/// Returns the ids and resets of a job's partitions.
async fn ids(fixture: &Fixture, job: &str) -> Result<Vec<(String, i64)>, Failed> {
    let found = until("the partition to be known", PATIENCE, || async {
        let partitions = fixture.partitions().await?.into_iter();
        let of_job = partitions.filter(|partition| partition.spec.owner.name == job);
        let statuses = of_job.filter_map(|partition| partition.status);
        let ids: Option<Vec<_>> = statuses
            .map(|status| Some((status.partition_id?, status.observed_reset_generation)))
            .collect();
        Ok::<_, kube::Error>(Seen::from(ids))
    });
    Ok(found.await?)
}
