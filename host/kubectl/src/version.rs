//! The versions of the plugin and of the operator.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::access::Access;
use crate::connection::Connection;
use crate::error::KubectlError;
use crate::reading::list;

/// Selects the Deployments of every release of the operator.
const DEPLOYMENTS: &str = "app.kubernetes.io/part-of=ipu-operator";

/// Label with the version of a release.
const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// The version of the plugin.
pub fn own() -> String {
    format!("kubectl-ipu {}", env!("CARGO_PKG_VERSION"))
}

/// The versions of the operator, one line for each release. If the user may not list the
/// Deployments of all namespaces, only those of one namespace.
pub(crate) async fn of_operator(connection: &Connection) -> Result<Vec<String>, KubectlError> {
    let client = &connection.client;
    let selected = ListParams::default().labels(DEPLOYMENTS);
    let all: Api<Deployment> = Api::all(client.clone());
    let found = list(&all, selected.clone(), "Deployments").await?;
    if found.allowed().is_some() {
        return Ok(lines(&found));
    }
    let here: Api<Deployment> = Api::namespaced(client.clone(), &connection.namespace);
    Ok(lines(&list(&here, selected, "Deployments").await?))
}

fn lines(found: &Access<Vec<Deployment>>) -> Vec<String> {
    let deployments = match found {
        Access::Allowed(deployments) => deployments,
        Access::Denied(words) => return vec![format!("ipu-operator: unknown: {words}")],
    };
    let version = |one: &Deployment| {
        let version = one.labels().get(VERSION_LABEL)?;
        let namespace = one.namespace().unwrap_or_default();
        Some(format!("ipu-operator {version} (namespace {namespace})"))
    };
    let releases: BTreeSet<String> = deployments.iter().filter_map(version).collect();
    if releases.is_empty() {
        return vec!["ipu-operator: not found".to_owned()];
    }
    releases.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_release_has_a_line_and_missing_rights_are_named() {
        let deployment = |name: &str, namespace: &str| -> Deployment {
            let labels = json!({"app.kubernetes.io/version": "0.2.0"});
            let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let two = ["controller-manager", "vipu-proxy"].map(|name| deployment(name, "ipu"));
        let one = "ipu-operator 0.2.0 (namespace ipu)";
        assert_eq!(lines(&Access::Allowed(two.to_vec())), [one]);
        let none = lines(&Access::Allowed(Vec::new()));
        assert_eq!(none, ["ipu-operator: not found"]);
        let denied = lines(&Access::Denied("forbidden".to_owned()));
        assert_eq!(denied, ["ipu-operator: unknown: forbidden"]);
    }
}
