//! The probes of the operator's Pods, from the start of the load to its end.

use std::collections::BTreeSet;

use harness::operator::NAMESPACE;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use libtest_mimic::Failed;
use tests::flood::probes::Probes;

use super::Running;
use crate::fixture::Fixture;

/// The results of the probes so far, from the kubelets and the Events. The kubelets count every
/// probe. A kubelet that has written many Events of a Pod writes no more for a while.
pub(super) async fn now(fixture: &Fixture, pods: &[Running]) -> Result<Probes, Failed> {
    let mut probes = Probes::default();
    let nodes: BTreeSet<&str> = pods.iter().map(|pod| pod.node.as_str()).collect();
    for node in nodes {
        let path = format!("/api/v1/nodes/{node}/proxy/metrics/probes");
        let metrics = fixture.kubectl(&["get", "--raw", &path]).await?;
        probes.add_counts(NAMESPACE, &metrics);
    }
    let events: Api<Event> = Api::namespaced(fixture.operated.client.clone(), NAMESPACE);
    let unhealthy = ListParams::default().fields("reason=Unhealthy");
    for event in events.list(&unhealthy).await? {
        probes.add_event(&event);
    }
    Ok(probes)
}

/// Checks that every Pod was probed since an earlier time, and that no probe failed.
pub(super) fn were_answered(
    before: &Probes,
    after: &Probes,
    pods: &[Running],
) -> Result<(), Failed> {
    let failures = after.failures_since(before);
    if !failures.is_empty() {
        return Err(format!("probes failed under load: {}", failures.join("; ")).into());
    }
    for Running { name, .. } in pods {
        let answered = after.answered_since(before, name);
        println!("{name}: {answered} probes, and none failed");
        if answered == 0 {
            return Err(format!("no probe of {name} was counted: {after:?}").into());
        }
    }
    Ok(())
}
