//! Reads the Node and NetworkAttachmentDefinitions from the API server, and writes the status of
//! the Node.

use std::collections::BTreeMap;

use ipu_text::explain;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::Value;

use crate::facts::Fact;
use crate::requirements::NetworkName;

/// Manager of the fields that this package writes, which differs from that of the IPUs that nodes
/// advertise.
const FIELD_MANAGER: &str = "ipu-node";

/// A failed request about the node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// There is no connection to an API server.
    #[error("there is no API server")]
    NoClient,
    /// The Node cannot be read.
    #[error("failed to read the Node {0}")]
    Read(String, #[source] Box<kube::Error>),
    /// The status of the Node cannot be written.
    #[error("failed to write the status of the Node {0}")]
    Write(String, #[source] Box<kube::Error>),
}

/// Reads the Node.
pub(crate) async fn node(client: &Client, name: &str) -> Result<Node, ClusterError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let read = nodes.get(name).await;
    read.map_err(|source| ClusterError::Read(name.to_owned(), Box::new(source)))
}

/// Whether each NetworkAttachmentDefinition exists, by `namespace/name`. Without its definition
/// none exists.
pub(crate) async fn networks(
    client: Option<&Client>,
    names: &[NetworkName],
) -> BTreeMap<String, Fact<bool>> {
    let mut found = BTreeMap::new();
    for name in names {
        let exists = match client {
            Some(client) => exists(client, name).await,
            None => Err(ClusterError::NoClient.to_string()),
        };
        found.insert(name.to_string(), exists);
    }
    found
}

async fn exists(client: &Client, network: &NetworkName) -> Fact<bool> {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let kind = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    let networks: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &network.namespace, &kind);
    match networks.get_metadata_opt(&network.name).await {
        Ok(found) => Ok(found.is_some()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(explain(&error)),
    }
}

/// Writes the status of the Node.
pub(crate) async fn report(client: &Client, name: &str, patch: &Value) -> Result<(), ClusterError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let written = nodes
        .patch_status(name, &params, &Patch::Strategic(patch))
        .await;
    let failed = |source| ClusterError::Write(name.to_owned(), Box::new(source));
    written.map(drop).map_err(failed)
}

/// The Node as the object of an event.
pub(crate) fn reference(node: &Node) -> ObjectReference {
    ObjectReference {
        api_version: Some(Node::api_version(&()).into_owned()),
        kind: Some(Node::kind(&()).into_owned()),
        name: Some(node.name_any()),
        uid: node.uid(),
        ..ObjectReference::default()
    }
}
