//! Lists the live Pods that use a partition.
//!
//! Everybody who may create Pods can create any number of large ones with the id of a partition.
//! Therefore a list contains the metadata of a few Pods, it ends when it has enough of them, and
//! few lists are read at the same time.

pub(crate) mod waits;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::{dns1123, labels, naming};
use ipu_ledger::observations::USERS_MAX;
use ipu_runtime::api_client;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use kube::{Client, Resource};
use serde::Deserialize;
use tokio::sync::Semaphore;

/// Pods that all lists may read at the same time.
const PODS: u32 = 10;

/// Page size of a list of Pods with an id: most are empty, and many are read at the same time.
const PAGE: u32 = 2;

/// Maximum size of a Pod as JSON, in bytes: the API server accepts no larger request.
const POD_MAX: usize = 3 << 20;

/// Maximum memory of all lists, in bytes.
pub const MEMORY: usize = page_memory(PODS);

/// Selects live Pods. Terminating Pods are live.
const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Selects live Pods on nodes.
const LIVE_ON_A_NODE: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Maximum memory of a page with this number of Pods, in bytes. The client copies a reply before it
/// decodes it.
pub(crate) const fn page_memory(pods: u32) -> usize {
    2 * pods as usize * POD_MAX
}

/// The Pods that use a partition could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("failed to list the Pods that use partition {id}")]
pub struct ListPodsError {
    id: String,
    source: kube::Error,
}

/// The fields of a Pod that are read. The others may have any size, or times that cannot be read.
#[derive(Clone, Debug, Deserialize)]
struct ListedPod {
    metadata: ListedMetadata,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedMetadata {
    namespace: String,
    name: String,
    #[serde(default)]
    owner_references: Vec<ListedOwner>,
}

#[derive(Clone, Debug, Deserialize)]
struct ListedOwner {
    uid: String,
}

/// Lists the Pods that use partitions, and bounds the memory for it.
pub(super) struct PodUsers {
    client: Client,
    /// A permit for each Pod of a page.
    pods: Semaphore,
}

impl PodUsers {
    pub(super) fn new(client: Client) -> Self {
        let pods = Semaphore::new(PODS as usize);
        Self { client, pods }
    }

    /// `namespace/name` of the live Pods that use the partition of this IPUPartition. Pods of other
    /// namespaces do not count: otherwise every user who may label a Pod there could prevent the
    /// release. Pods of Graphcore's operator have no id: every live Pod of the owner uses an
    /// adopted partition.
    pub(super) async fn of_owner(
        &self,
        partition: &IPUPartition,
        id: &str,
    ) -> Result<Vec<String>, ListPodsError> {
        let (owner, slot) = (&partition.spec.owner, partition.spec.slot);
        // A user may have written anything, and an owner that cannot exist has no Pods.
        if !dns1123::can_exist(owner) {
            return Ok(Vec::new());
        }
        let namespace = Some(owner.namespace.as_str());
        let live = |labels: &str| ListParams::default().fields(LIVE).labels(labels);
        let failed = |source| ListPodsError::of(id, source);
        let labelled = self.list(namespace, live(&with_id(id)), None).await;
        let mut found = labelled.map_err(failed)?;
        if found.len() < USERS_MAX && id == naming::adoptable_partition(owner, slot) {
            let params = live(&format!("!{}", labels::PARTITION_ID_LABEL));
            let unlabelled = self.list(namespace, params, Some(&owner.uid)).await;
            found.extend(unlabelled.map_err(failed)?);
        }
        Ok(found)
    }

    /// `namespace/name` of the live Pods that may use this id, which no IPUPartition lists. A Pod
    /// may be in any namespace, because another release may have created the partition. A user who
    /// may label Pods can keep such a partition, but only with a Pod on a node: a Pod that waits
    /// for a node uses no partition, and gets no id without an IPUPartition.
    pub(super) async fn of_orphan(&self, id: &str) -> Result<Vec<String>, ListPodsError> {
        let params = ListParams::default().fields(LIVE_ON_A_NODE);
        let listed = self.list(None, params.labels(&with_id(id)), None).await;
        listed.map_err(|source| ListPodsError::of(id, source))
    }

    /// `namespace/name` of the Pods in a namespace, or in all, that `params` selects: all if they
    /// are fewer than [`USERS_MAX`]. With the UID of an `owner`, only its Pods.
    async fn list(
        &self,
        namespace: Option<&str>,
        params: ListParams,
        owner: Option<&str>,
    ) -> kube::Result<Vec<String>> {
        // Of all Pods in a namespace, a few belong to the owner.
        let mut params = params.limit(if owner.is_some() { PODS } else { PAGE });
        let mut found = Vec::new();
        loop {
            let page = self.page(namespace, &params).await?;
            let pods = page.items.iter();
            let pods = pods.filter(|pod| owner.is_none_or(|uid| pod.is_of(uid)));
            found.extend(pods.map(ListedPod::full_name));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) if found.len() < USERS_MAX => params.continue_token = Some(token),
                Some(_) | None => {
                    // The number is in messages, and does not depend on the pages.
                    found.truncate(USERS_MAX);
                    return Ok(found);
                }
            }
        }
    }

    /// A page of a list, read from the API server: a cache may lack a Pod that has just started.
    async fn page(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> kube::Result<ObjectList<ListedPod>> {
        let request = Request::new(Pod::url_path(&(), namespace)).list_metadata(params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let permit = self.pods.acquire_many(params.limit.unwrap_or(PODS)).await;
        let _permit = permit.expect("the semaphore is never closed");
        api_client::with_timeout(self.client.request(request)).await
    }
}

impl ListPodsError {
    fn of(id: &str, source: kube::Error) -> Self {
        let id = id.to_owned();
        Self { id, source }
    }
}

impl ListedPod {
    fn is_of(&self, owner: &str) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        owners.any(|reference| reference.uid == owner)
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }
}

fn with_id(id: &str) -> String {
    format!("{}={id}", labels::PARTITION_ID_LABEL)
}

#[cfg(test)]
mod tests;
