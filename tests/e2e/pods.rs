//! Reads single Pods for the trials.

use cluster::wait::{Seen, until};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;

use crate::fixture::{Fixture, PATIENCE};

/// Returns the UID of a Pod of the default namespace, once it runs and differs from the former UID.
pub(crate) async fn runs(
    fixture: &Fixture,
    pod: &str,
    before: Option<&str>,
) -> Result<String, Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    let found = until(format!("{pod} to run"), PATIENCE, || async {
        let found = pods.get_opt(pod).await?.unwrap_or_default();
        let uid = found.uid().filter(|uid| Some(uid.as_str()) != before);
        let phase = found.status.and_then(|status| status.phase);
        Ok::<_, kube::Error>(match (uid, phase.as_deref()) {
            (Some(uid), Some("Running")) => Seen::Yes(uid),
            other => Seen::NotYet(format!("{other:?}")),
        })
    });
    Ok(found.await?)
}

/// Returns the node of a Pod of the default namespace.
pub(crate) async fn node_of(fixture: &Fixture, pod: &str) -> Result<String, Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    let spec = pods.get(pod).await?.spec;
    let node = spec.and_then(|spec| spec.node_name);
    Ok(node.ok_or("the Pod is on no node")?)
}
