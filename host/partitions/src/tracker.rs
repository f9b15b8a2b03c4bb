//! Keeps the ConfigMap that tells people, and users of the original, which job has which partition.

mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use ipu_api::labels;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use tokio_util::sync::CancellationToken;

use self::summary::Lines;
use super::watched::Watched;

/// How often it is looked whether the summary has changed.
const PERIOD: Duration = Duration::from_secs(5);

/// Where the summary is kept.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// The release's namespace.
    pub namespace: String,
    /// Name of the ConfigMap.
    pub name: String,
}

impl Tracker {
    /// Writes the summary when it has changed, until it is told to stop. It is for people: that it
    /// cannot be written is said in the log and stops nothing.
    pub async fn run(self, client: Client, partitions: Watched, stop: CancellationToken) {
        let (mut written, mut told) = (None, 0);
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = stop.cancelled() => return,
            }
            let changes = partitions.read(|cache| cache.changes());
            if changes == told || !partitions.is_listed() {
                continue;
            }
            let mut lines = Lines::default();
            partitions.each_readable(|one| lines.tell(&one)).await;
            let lines = lines.that_fit();
            if written.as_ref() == Some(&lines) {
                told = changes;
                continue;
            }
            match self.write(&client, lines.clone()).await {
                Ok(()) => (written, told) = (Some(lines), changes),
                Err(error) => {
                    let name = &self.name;
                    tracing::warn!(name, %error, "failed to write the summary of partitions");
                }
            }
        }
    }

    /// Server-side apply: keys that somebody else put there stay, and those that were ours and are
    /// no longer wanted go.
    async fn write(
        &self,
        client: &Client,
        lines: BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(BTreeMap::from([(
                    labels::MANAGED_BY_LABEL.to_owned(),
                    labels::MANAGED_BY.to_owned(),
                )])),
                ..ObjectMeta::default()
            },
            data: Some(lines),
            ..ConfigMap::default()
        };
        let forced = PatchParams::apply(labels::FIELD_MANAGER).force();
        Api::<ConfigMap>::namespaced(client.clone(), &self.namespace)
            .patch(&self.name, &forced, &Patch::Apply(map))
            .await
            .map(|_| ())
    }
}
