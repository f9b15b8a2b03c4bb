//! A Job, a JobSet and a bare Pod in a queue of the real Kueue, with the AdmissionCheck: their
//! partitions are formed before their admission, and their Pods take them over.

use std::collections::BTreeSet;

use cluster::wait::{Seen, until};
use harness::demo::{CleanupError, partitions_of};
use ipu_api::labels::{PARTITION_GATE, POD_UID_LABEL};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tests::kueue::apply;
use tests::kueue::objects::{
    QUEUE_LABEL, admission_check, cluster_queue, local_queue, resource_flavor,
};
use tests::kueue::workload::{Workload, of_owner, workloads};

use super::{container, create, delete, is_running, once, partition, pod, uid};
use crate::disruptions::SERVES;
use crate::fixture::{Fixture, PATIENCE};
use crate::managers::delete_queues;
use crate::simulators::{form_in, reset};

/// Name of the ClusterQueue, and of its LocalQueue.
const QUEUE: &str = "native";

/// Name of the flavor of all nodes.
const FLAVOR: &str = "all-nodes";

/// Name of the AdmissionCheck.
const CHECK: &str = "partitions";

/// Quota in IPUs: the Job or the JobSet uses all of it.
const QUOTA: u32 = 8;

/// The scheduling gate that Kueue puts on a bare Pod.
const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";

/// Label of the Pods of the Job.
const OF_JOB: &str = "batch.kubernetes.io/job-name=batch";

/// Label of the Pods of the JobSet.
const OF_JOBSET: &str = "jobset.sigs.k8s.io/jobset-name=pair";

/// The program of Pods that end at once. Without a partition they fail.
const CHECKS: &str = "test -n \"$IPUOF_VIPU_API_PARTITION_ID\"";

/// Longer than Kueue takes to admit a Workload that waits for nothing.
const FORMING: u64 = 10_000;

/// The Job is admitted once its partitions are formed. A JobSet and a bare Pod wait for its quota
/// without any IPU, and run when the Job is gone. Each Pod uses a partition that was formed before
/// its admission.
pub(crate) fn wait_for_quota_and_partitions(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        create_queue(fixture).await?;
        let before = creates(fixture).await?;
        for controller in &fixture.operated.controllers {
            form_in(controller, FORMING).await?;
        }
        create::<Job>(fixture, batch()).await?;
        forms_before_the_admission(fixture).await?;
        for controller in &fixture.operated.controllers {
            reset(controller).await?;
        }
        let both = |pods: &[Pod]| pods.len() == 2 && pods.iter().all(is_running);
        let pods = once(fixture, OF_JOB, "both to run", both).await?;
        have_taken_over(fixture, &pods).await?;

        let folder = tempfile::tempdir()?;
        let file = folder.path().join("jobset.json");
        std::fs::write(&file, jobset().to_string())?;
        fixture.operated.kubectl.apply(&file).await?;
        create::<Pod>(fixture, bare()).await?;
        wait_for_quota(fixture).await?;
        delete(fixture, "job.batch/batch").await?;
        complete(fixture).await?;
        fixture.once_no_partition().await?;
        let created = creates(fixture).await? - before;
        assert_eq!(created, 5, "no Pod has requested another partition");

        delete(fixture, "jobset/pair").await?;
        delete(fixture, "pod/bare").await?;
        once_no_workload(fixture).await?;
        fixture.clear().await?;
        delete_queues(fixture).await
    })
}

/// The admin creates a queue with the check.
async fn create_queue(fixture: &Fixture) -> Result<(), Failed> {
    let mut queue = cluster_queue(QUEUE, &[(FLAVOR, QUOTA)]);
    let checks = json!([{"name": CHECK}]);
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
    for object in [
        resource_flavor(FLAVOR, &[]),
        admission_check(CHECK),
        queue,
        local_queue("default", QUEUE, QUEUE),
    ] {
        apply(&fixture.operated.client, &object).await?;
    }
    Ok(())
}

/// Waits until a partition of the Job forms, while the Job has quota and is not admitted.
async fn forms_before_the_admission(fixture: &Fixture) -> Result<(), Failed> {
    let what = "to have quota and to wait for its partitions";
    let waiting = once_workload(fixture, ("Job", "batch"), what, |one| {
        let check = one.check(CHECK);
        one.is("QuotaReserved") && check.is_some_and(|check| check["state"] == "Pending")
    });
    assert!(!waiting.await?.is("Admitted"));
    until("a partition of the Job to form", PATIENCE, async || {
        let mut ids = Vec::new();
        for controller in &fixture.operated.controllers {
            ids.extend(partitions_of(controller).await?);
        }
        Ok::<_, CleanupError>(Seen::when(ids, |ids| !ids.is_empty()))
    })
    .await?;
    let jobs: Api<Job> = Api::default_namespaced(fixture.operated.client.clone());
    let spec = jobs.get("batch").await?.spec.unwrap_or_default();
    assert_eq!(spec.suspend, Some(true), "its partitions are not formed");
    assert_eq!(pods_of(fixture, OF_JOB).await?.len(), 0);
    Ok(())
}

/// Waits until the JobSet and the bare Pod wait for quota. Then none of their Pods can start, and
/// none has a partition.
async fn wait_for_quota(fixture: &Fixture) -> Result<(), Failed> {
    for owner in [("JobSet", "pair"), ("Pod", "bare")] {
        once_workload(fixture, owner, "to wait for quota", |one| {
            let message = one.message("QuotaReserved");
            !one.is("QuotaReserved") && message.contains("insufficient unused quota")
        })
        .await?;
    }
    assert_eq!(pods_of(fixture, OF_JOBSET).await?.len(), 0);
    let spec = pod(fixture, "bare").await?.spec.unwrap_or_default();
    let gates = spec.scheduling_gates.unwrap_or_default();
    let gates: Vec<String> = gates.into_iter().map(|gate| gate.name).collect();
    for gate in [ADMISSION_GATE, PARTITION_GATE] {
        assert!(gates.iter().any(|found| found == gate), "{gate}: {gates:?}");
    }
    assert_eq!(
        fixture.partitions().await?.len(),
        2,
        "only the partitions of the Job"
    );
    Ok(())
}

/// Waits until the JobSet and the bare Pod have completed, each Pod with a partition of its own.
async fn complete(fixture: &Fixture) -> Result<(), Failed> {
    for (condition, object) in [
        ("condition=Completed", "jobset/pair"),
        ("jsonpath={.status.phase}=Succeeded", "pod/bare"),
    ] {
        let condition = format!("--for={condition}");
        let ends = ["wait", &condition, "--timeout=180s", object];
        fixture.kubectl(&ends).await?;
    }
    let mut pods = pods_of(fixture, OF_JOBSET).await?;
    pods.push(pod(fixture, "bare").await?);
    let mut ids = BTreeSet::new();
    for pod in &pods {
        ids.insert(partition(pod)?);
    }
    assert_eq!((pods.len(), ids.len()), (3, 3), "{ids:?}");
    Ok(())
}

/// Checks that all IPUPartitions belong to Workloads, and that these Pods have taken them over.
async fn have_taken_over(fixture: &Fixture, pods: &[Pod]) -> Result<(), Failed> {
    let mut expected = BTreeSet::new();
    for pod in pods {
        expected.insert(("Workload".to_owned(), uid(pod), partition(pod)?.to_owned()));
    }
    let partitions = fixture.partitions().await?.into_iter().map(|one| {
        let pod = one.labels().get(POD_UID_LABEL).cloned();
        let id = one.status.and_then(|status| status.partition_id);
        let kind = one.spec.owner.kind;
        (kind, pod.unwrap_or_default(), id.unwrap_or_default())
    });
    assert_eq!(partitions.collect::<BTreeSet<_>>(), expected);
    Ok(())
}

/// Returns the Workload of an object once it `is_so`.
async fn once_workload(
    fixture: &Fixture,
    owner: (&str, &str),
    what: &str,
    is_so: impl Fn(&Workload) -> bool,
) -> Result<Workload, Failed> {
    let client = &fixture.operated.client;
    let what = format!("the Workload of {owner:?} {what}");
    let found = until(what, PATIENCE, async || {
        let found = of_owner(client, "default", owner).await?;
        let seen = format!("{found:?}");
        let found = found.into_iter().find(&is_so);
        Ok::<_, kube::Error>(found.map_or(Seen::NotYet(seen), Seen::Yes))
    });
    Ok(found.await?)
}

/// Waits until no Workload is left. Kueue removes their finalizers, so it must not be uninstalled
/// before.
async fn once_no_workload(fixture: &Fixture) -> Result<(), Failed> {
    let workloads = workloads(&fixture.operated.client, "default");
    until("the Workloads to go", PATIENCE, async || {
        let left = workloads.list(&ListParams::default()).await?.items.len();
        Ok::<_, kube::Error>(Seen::when(left, |left| *left == 0))
    })
    .await?;
    Ok(())
}

/// Returns the Pods with this label.
async fn pods_of(fixture: &Fixture, label: &str) -> Result<Vec<Pod>, Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    let selected = ListParams::default().labels(label);
    Ok(pods.list(&selected).await?.items)
}

/// Returns the number of CreatePartition calls to all V-IPU controllers.
async fn creates(fixture: &Fixture) -> Result<usize, Failed> {
    let mut creates = 0;
    for controller in &fixture.operated.controllers {
        creates += fixture.creates_seen(controller).await?;
    }
    Ok(creates)
}

/// A queued Job of two Pods, which run until SIGTERM.
fn batch() -> Value {
    json!({
        "metadata": {"name": "batch", "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [container(4, SERVES)],
            }},
        },
    })
}

/// A queued JobSet of two Jobs of one Pod each.
fn jobset() -> Value {
    let job = |name: &str| {
        json!({
            "name": name,
            "template": {"spec": {
                "backoffLimit": 0,
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [container(4, CHECKS)],
                }},
            }},
        })
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "pair", "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {"replicatedJobs": [job("one"), job("two")]},
    })
}

/// A queued Pod without an owner.
fn bare() -> Value {
    json!({
        "metadata": {"name": "bare", "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {"restartPolicy": "Never", "containers": [container(4, CHECKS)]},
    })
}
