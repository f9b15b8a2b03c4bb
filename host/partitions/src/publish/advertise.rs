//! Advertises the IPUs of V-IPU controllers on the nodes that reach them: Kubernetes then schedules
//! Pods with the limit `graphcore.ai/ipu`, and counts it in quotas. The ledger alone decides which
//! Pod gets which IPUs.

pub mod decide;

use std::sync::Arc;
use std::time::Duration;

use ipu_api::labels::IPU_RESOURCE;
use ipu_text::explain;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::decide::{Change, Known, NODES_MANAGER};
use super::controller_objects::{ControllerObjects, ManagingRelease};
use crate::leader::Context;

/// Time between two rounds. A node that is created anew advertises nothing until the next one.
const PERIOD: Duration = Duration::from_secs(30);

/// Nodes that are read at once.
const PAGE: u32 = 200;

/// Failures of a round that the log names. More of them mostly have the same reason.
const LISTED: usize = 5;

/// Failure of a round. The next one does the rest.
#[derive(Debug, thiserror::Error)]
enum AdvertiseError {
    #[error("failed to list the nodes")]
    List(#[source] kube::Error),
    #[error("failed to read node {0}")]
    Read(String, #[source] kube::Error),
    #[error("failed to advertise IPUs on node {0}")]
    Patch(String, #[source] kube::Error),
}

/// Advertises until `stop`. The objects show the controllers of other releases.
pub async fn run(
    context: Arc<Context>,
    objects: ControllerObjects,
    manager: ManagingRelease,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let views = context.pool.views().await;
        let others = objects.of_others(&manager);
        let failures = round(&context.client, &Known::of(&views, others)).await;
        if !failures.is_empty() {
            tracing::warn!(
                "the IPUs of nodes are not up to date: {}",
                listed(&failures)
            );
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await;
    }
}

/// Updates every node. An error of one node does not prevent the others.
async fn round(client: &Client, known: &Known) -> Vec<AdvertiseError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut failures = Vec::new();
    loop {
        let page = match nodes.list_metadata(&params).await {
            Ok(page) => page,
            Err(source) => {
                failures.push(AdvertiseError::List(source));
                return failures;
            }
        };
        for node in &page.items {
            failures.extend(update(client, node, known).await.err());
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return failures,
        }
    }
}

/// Brings one node up to date. Of a node that never reached a V-IPU controller nothing is read.
async fn update(
    client: &Client,
    node: &PartialObjectMeta<Node>,
    known: &Known,
) -> Result<(), AdvertiseError> {
    let (name, nodes) = (node.name_any(), Api::<Node>::all(client.clone()));
    let change = known.change(node.labels(), node.managed_fields());
    let status = match change {
        Change::Keep => return Ok(()),
        // The API server removes fields that their manager no longer applies.
        Change::Remove => json!(null),
        Change::Set(total) => {
            // A list of one needs no other right than the list of all.
            let only = ListParams::default().fields(&format!("metadata.name={name}"));
            let found = nodes.list(&only).await;
            let found = found.map_err(|source| AdvertiseError::Read(name.clone(), source))?;
            let status = found.items.into_iter().find_map(|node| node.status);
            let capacity = status
                .and_then(|status| status.capacity)
                .unwrap_or_default();
            if capacity
                .get(IPU_RESOURCE)
                .is_some_and(|now| now.0 == total.to_string())
            {
                return Ok(());
            }
            json!({"capacity": {IPU_RESOURCE: total.to_string()}})
        }
    };
    let patch = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": node.uid()},
        "status": status,
    });
    let params = PatchParams::apply(NODES_MANAGER).force();
    match nodes
        .patch_status(&name, &params, &Patch::Apply(&patch))
        .await
    {
        Ok(_) => {
            tracing::info!(
                node = name,
                ?change,
                "changed the IPUs that a node advertises"
            );
            Ok(())
        }
        // Gone, or created anew.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(source) => Err(AdvertiseError::Patch(name, source)),
    }
}

/// The first failures, and the number of the others.
fn listed(failures: &[AdvertiseError]) -> String {
    let failures = failures.iter().map(|error| explain(error));
    ipu_text::listed(failures, LISTED, "; ")
}

#[cfg(test)]
mod tests;
