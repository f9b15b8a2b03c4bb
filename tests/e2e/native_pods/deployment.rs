//! A Deployment of two Pods with free IPUs for one of them. The operator is killed meanwhile.

use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{condition, container, create, delete, has_reason, is_gated, is_running, once, uid};
use crate::disruptions::SERVES;
use crate::fixture::{Fixture, PATIENCE};
use crate::pods::runs;
use crate::simulators::{occupy, vacate};

const LABEL: &str = "app=web";

/// One Pod runs, and the other one waits and names the reason. When the first is deleted, the
/// second gets its IPUs, although the operator is killed meanwhile. It keeps running when the
/// Deployment is scaled to one Pod.
pub(crate) fn waits_for_its_ipus(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let (small, large) = fixture.controllers();
        occupy(small, 8).await?;
        occupy(small, 4).await?;
        occupy(large, 64).await?;
        create::<Deployment>(fixture, web()).await?;
        let what = "one to run, and one to wait";
        let pods = once(fixture, LABEL, what, |pods| {
            let waits = |pod: &_| is_gated(pod) && has_reason(pod, "WaitingForPartition");
            pods.len() == 2 && pods.iter().any(is_running) && pods.iter().any(waits)
        });
        let (running, waiting): (Vec<_>, Vec<_>) = pods.await?.into_iter().partition(is_running);
        let (running, waiting) = (&running[0], &waiting[0]);
        let message = condition(waiting).and_then(|one| one.message.as_deref());
        let message = message.unwrap_or_default();
        assert!(message.contains(&small.address), "{message}");
        once_an_event_reports(fixture, &waiting.name_any(), &small.address).await?;

        let name = running.name_any();
        let deleted = ["delete", "pod", &name, "--wait=false"];
        fixture.kubectl(&deleted).await?;
        fixture.kill_leading_controller().await?;
        fixture.kill_leading_proxy().await?;
        let now = runs(fixture, &waiting.name_any(), None).await?;
        assert_eq!(now, uid(waiting), "the Pod that waited");

        let scale = ["scale", "deployment/web", "--replicas=1"];
        fixture.kubectl(&scale).await?;
        let alone = |pods: &[_]| pods.len() == 1 && pods.iter().all(is_running);
        let left = once(fixture, LABEL, "one Pod to be left", alone).await?;
        assert_eq!(uid(&left[0]), now, "the Pod that ran");
        delete(fixture, "deployment/web").await?;
        vacate(small).await?;
        vacate(large).await?;
        fixture.webhooks_answer().await?;
        fixture.clear().await
    })
}

/// Two Pods with 4 IPUs each.
fn web() -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container(4, SERVES)],
                },
            },
        },
    })
}

/// Waits until an event of a Pod names the reason of its wait.
async fn once_an_event_reports(
    fixture: &Fixture,
    pod: &str,
    controller: &str,
) -> Result<(), Failed> {
    let selector = format!("--field-selector=reason=WaitingForPartition,involvedObject.name={pod}");
    let events = ["get", "events", &selector];
    until("an event to say why the Pod waits", PATIENCE, async || {
        let events = fixture.kubectl(&events).await?;
        Ok::<_, KubectlError>(Seen::when(events, |events| events.contains(controller)))
    })
    .await?;
    Ok(())
}
