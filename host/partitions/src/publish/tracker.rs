//! Maintains the ConfigMap that shows users, also those of Graphcore's operator, which job has
//! which partition.

mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use ipu_api::labels;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use tokio_util::sync::CancellationToken;

use self::summary::Lines;
use crate::store::watch::Watched;

/// Time between two checks of the summary.
const PERIOD: Duration = Duration::from_secs(5);

/// The ConfigMap of the summary.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// The release's namespace.
    pub namespace: String,
    /// Name of the ConfigMap.
    pub name: String,
}

impl Tracker {
    /// Writes the summary after changes, until `stop`. It is only for users: a failed write is
    /// logged.
    pub async fn run(self, client: Client, partitions: Watched, stop: CancellationToken) {
        let (mut written, mut last_changes) = (None, 0);
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = stop.cancelled() => return,
            }
            let changes = partitions.read(|cache| cache.changes());
            if changes == last_changes || !partitions.is_listed() {
                continue;
            }
            let mut lines = Lines::default();
            partitions
                .each_readable(|partition| lines.add(partition))
                .await;
            let lines = lines.that_fit();
            if written.as_ref() == Some(&lines) {
                last_changes = changes;
                continue;
            }
            match self.write(&client, lines.clone()).await {
                Ok(()) => (written, last_changes) = (Some(lines), changes),
                Err(error) => {
                    let name = &self.name;
                    tracing::warn!(name, %error, "failed to write the summary of partitions");
                }
            }
        }
    }

    /// Writes by server-side apply: keys of others stay, and own keys that are no longer set are
    /// removed.
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
