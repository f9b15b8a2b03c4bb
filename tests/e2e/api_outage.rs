//! The API server does not answer for more than a minute: what ran runs on, and what ended meanwhile is seen.

use std::time::Duration;

use cluster::fault::Stopped;
use cluster::wait::{Seen, until};
use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use serde_json::json;
use tests::described::{COMPLETED, RUNNING};

use crate::described::once_described;
use crate::failing_pods::job;
use crate::pods::runs;
use crate::scene::{PATIENCE, Scene};

/// How long nobody is answered. Every replica loses its Lease meanwhile.
const OUTAGE: Duration = Duration::from_secs(70);

/// One job runs on with the same Pod and partition, one that ends meanwhile is Completed afterwards, and a new one is
/// taken and run. Nothing is reset, nothing is left, and no job warns of what did not concern it.
pub(crate) fn is_survived(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let goes_on =
            json!({"command": ["bash", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]});
        let ends = json!({"command": ["sleep", "20"]});
        scene.create(&job("goes-on", json!({}), goes_on)?).await?;
        let before = runs(scene, "goes-on-worker-0", None).await?;
        scene.create(&job("ends", json!({}), ends)?).await?;
        runs(scene, "ends-worker-0", None).await?;
        let ids = ids(scene, "goes-on").await?;

        let stopped = Stopped::daemon(&scene.settings.run, "kube-apiserver")?;
        // This is the fault itself, and no wait for anything.
        tokio::time::sleep(OUTAGE).await;
        drop(stopped);

        scene.once("ends", JobState::Completed).await?;
        scene.webhooks_answer().await?;
        scene.create(&job("later", json!({}), json!({}))?).await?;
        scene.once("later", JobState::Completed).await?;
        assert_eq!(runs(scene, "goes-on-worker-0", None).await?, before);
        assert_eq!(self::ids(scene, "goes-on").await?, ids);
        scene.once("goes-on", JobState::Running).await?;
        for (name, expected) in [
            ("goes-on", &RUNNING),
            ("ends", &COMPLETED),
            ("later", &COMPLETED),
        ] {
            once_described(scene, name, expected).await?;
        }
        scene.clear("default").await
    })
}

/// Ids and resets of a job's partitions.
async fn ids(scene: &Scene, job: &str) -> Result<Vec<(String, i64)>, Failed> {
    let found = until("the partition to be known", PATIENCE, || async {
        let partitions = scene.partitions().await?.into_iter();
        let of_job = partitions.filter(|partition| partition.spec.owner.name == job);
        let statuses = of_job.filter_map(|partition| partition.status);
        let ids: Option<Vec<_>> = statuses
            .map(|status| Some((status.partition_id?, status.observed_reset_generation)))
            .collect();
        Ok::<_, kube::Error>(Seen::from(ids))
    });
    Ok(found.await?)
}
