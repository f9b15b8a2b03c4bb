//! Owners that create Pods again, and containers that restart: which of them keep a partition, and
//! which get another one.

use std::collections::BTreeSet;

use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use serde_json::json;

use super::{container, create, delete, is_running, once, partition, phase, pod, uid};
use crate::disruptions::SERVES;
use crate::fixture::{Fixture, PATIENCE};
use crate::pods::runs;

/// A Job, a StatefulSet and a bare Pod at the same time.
pub(crate) fn replace_and_restart_pods(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        futures::try_join!(
            job_tries_again(fixture),
            stateful_set_creates_a_pod_again(fixture),
            container_starts_again(fixture),
        )?;
        fixture.clear().await
    })
}

/// Each Pod of a Job that fails has a partition of its own, up to the Job's `backoffLimit`.
async fn job_tries_again(fixture: &Fixture) -> Result<(), Failed> {
    let fails = container(4, "echo $IPUOF_VIPU_API_PARTITION_ID; exit 7");
    create::<Job>(
        fixture,
        json!({
            "metadata": {"name": "fails"},
            "spec": {
                "backoffLimit": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": [fails]}},
            },
        }),
    )
    .await?;
    let jobs: Api<Job> = Api::default_namespaced(fixture.operated.client.clone());
    until("the Job to give up", PATIENCE, async || {
        let status = jobs.get("fails").await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let reasons = conditions.into_iter().filter_map(|one| one.reason);
        let reasons: Vec<String> = reasons.collect();
        Ok::<_, kube::Error>(Seen::when(reasons, |reasons| {
            reasons
                .iter()
                .any(|reason| reason == "BackoffLimitExceeded")
        }))
    })
    .await?;
    let label = "batch.kubernetes.io/job-name=fails";
    let failed = |pods: &[Pod]| pods.iter().all(|pod| phase(pod) == Some("Failed"));
    let pods = once(fixture, label, "all to have failed", failed).await?;
    let mut ids = BTreeSet::new();
    for pod in &pods {
        let log = fixture.kubectl(&["logs", &pod.name_any()]).await?;
        assert_eq!(log.trim(), partition(pod)?);
        ids.insert(partition(pod)?.to_owned());
    }
    assert_eq!((pods.len(), ids.len()), (2, 2), "{ids:?}");
    delete(fixture, "job.batch/fails").await
}

/// A Pod that a StatefulSet creates again under the same name gets another partition.
async fn stateful_set_creates_a_pod_again(fixture: &Fixture) -> Result<(), Failed> {
    create::<StatefulSet>(
        fixture,
        json!({
            "metadata": {"name": "set"},
            "spec": {
                "serviceName": "set",
                "replicas": 2,
                "selector": {"matchLabels": {"app": "set"}},
                "template": {
                    "metadata": {"labels": {"app": "set"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [container(2, SERVES)],
                    },
                },
            },
        }),
    )
    .await?;
    let both = |pods: &[Pod]| pods.len() == 2 && pods.iter().all(is_running);
    let before = once(fixture, "app=set", "both to run", both).await?;
    let first = before.iter().find(|pod| pod.name_any() == "set-0");
    let first = first.ok_or("there is no set-0")?;
    fixture.kubectl(&["delete", "pod", "set-0"]).await?;
    runs(fixture, "set-0", Some(&uid(first))).await?;
    let after = once(fixture, "app=set", "both to run again", both).await?;
    let mut ids = BTreeSet::new();
    for pod in before.iter().chain(&after) {
        ids.insert(partition(pod)?.to_owned());
    }
    assert_eq!(
        ids.len(),
        3,
        "the Pod that was created again has a new one: {ids:?}"
    );
    delete(fixture, "statefulset/set").await
}

/// A container that restarts in its Pod keeps its partition.
///
/// Each start notes its partition in a volume, since the log of the start before need not exist: a
/// slow kubelet counts the container it has just created among those that ended, and keeps one.
async fn container_starts_again(fixture: &Fixture) -> Result<(), Failed> {
    let notes = "echo $IPUOF_VIPU_API_PARTITION_ID >> /state/starts";
    let fails_once = "[ -e /state/again ] || { touch /state/again; exit 7; }";
    let command = format!("{notes}; {fails_once}; cat /state/starts; {SERVES}");
    let mut main = container(4, &command);
    main["volumeMounts"] = json!([{"name": "state", "mountPath": "/state"}]);
    create::<Pod>(
        fixture,
        json!({
            "metadata": {"name": "again", "labels": {"app": "again"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "volumes": [{"name": "state", "emptyDir": {}}],
                "containers": [main],
            },
        }),
    )
    .await?;
    once(
        fixture,
        "app=again",
        "its container to start again",
        |pods| pods.iter().any(|pod| is_running(pod) && restarts(pod) == 1),
    )
    .await?;
    let id = partition(&pod(fixture, "again").await?)?.to_owned();
    let starts = format!("{id}\n{id}");
    until(format!("both starts to have {id}"), PATIENCE, async || {
        let log = fixture.kubectl(&["logs", "again"]).await?;
        Ok::<_, KubectlError>(Seen::when(log, |log| log.trim() == starts))
    })
    .await?;
    delete(fixture, "pod/again").await
}

/// Returns how often the running containers of a Pod have restarted.
fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter();
    let statuses = statuses.flat_map(|status| status.container_statuses.iter().flatten());
    let run = statuses.filter(|status| {
        let state = status.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    });
    run.map(|status| status.restart_count).sum()
}
