//! Pods that Kubernetes evicts: by preemption and by `kubectl drain`, with and without a
//! PodDisruptionBudget.

use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::labels;
use libtest_mimic::Failed;
use serde_json::json;

use crate::failing_pods::{IMAGE, job};
use crate::fixture::{Fixture, PATIENCE};
use crate::pods::{node_of, runs};

/// The program of every worker here: it runs until SIGTERM.
pub(crate) const SERVES: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// The options of a drain that does not affect the rest of the cluster.
const DRAIN: [&str; 4] = [
    "--ignore-daemonsets",
    "--delete-emptydir-data",
    "--force",
    "--timeout=120s",
];

/// A Pod of a higher priority preempts a worker: the job names the reason and waits. When the
/// resources are free again, the worker returns on the same partition, which was reset.
pub(crate) fn is_preempted(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        // Both request resources on the node of the second controller.
        let pinned = json!({"nodeSelector": {"ipunode": "pod2"}});
        // More than half of the resources of a node, regardless of its other Pods.
        let large = json!({"requests": {"cpu": "1100m"}});
        let serves = json!({"command": ["bash", "-c", SERVES], "resources": large});
        fixture.create(&job("low", pinned.clone(), serves)?).await?;
        let before = runs(fixture, "low-worker-0", None).await?;

        let class = ["create", "priorityclass", "urgent", "--value=1000000"];
        fixture.kubectl(&class).await?;
        let urgent = json!({"spec": {
            "nodeSelector": pinned["nodeSelector"],
            "priorityClassName": "urgent",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "urgent", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
                "command": ["bash", "-c", SERVES], "resources": large,
            }],
        }});
        let image = format!("--image={IMAGE}");
        let overrides = format!("--overrides={urgent}");
        fixture
            .kubectl(&["run", "urgent", &image, &overrides])
            .await?;
        let preempted = "Pod low-worker-0 is being deleted: PreemptionByScheduler";
        fixture
            .described("low", &[preempted, "Unschedulable", "Insufficient cpu"])
            .await?;

        fixture.kubectl(&["delete", "pod", "urgent"]).await?;
        fixture
            .kubectl(&["delete", "priorityclass", "urgent"])
            .await?;
        runs(fixture, "low-worker-0", Some(&before)).await?;
        assert_eq!(resets(fixture).await?, [1], "reset before its next use");
        fixture.clear().await
    })
}

/// A worker without a launcher is drained: it returns when its node is schedulable again, on the
/// same partition, which was reset. While a PodDisruptionBudget forbids it, the drain waits and the
/// worker runs.
pub(crate) fn worker_is_drained(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let serves = json!({"command": ["bash", "-c", SERVES]});
        fixture.create(&job("drained", json!({}), serves)?).await?;
        let before = runs(fixture, "drained-worker-0", None).await?;
        let node = node_of(fixture, "drained-worker-0").await?;
        let of_job = format!("{}=drained", labels::JOB_NAME_LABEL);

        budget_forbids_drain(fixture, &node, &of_job, 1).await?;
        assert_eq!(runs(fixture, "drained-worker-0", None).await?, before);
        drain(fixture, &node, &of_job, DRAIN[3]).await?;
        let why = [
            "Pod drained-worker-0 is being deleted: EvictionByEvictionAPI",
            "Pod drained-worker-0: Unschedulable: 0/2 nodes",
        ];
        fixture.described("drained", &why).await?;
        fixture.kubectl(&["uncordon", &node]).await?;
        runs(fixture, "drained-worker-0", Some(&before)).await?;
        assert_eq!(resets(fixture).await?, [1], "reset before its next use");
        fixture.clear().await
    })
}

/// A drain evicts a worker, then in another job the launcher, under `mpirun`: each job fails and
/// names the drain as the reason. Before that, a PodDisruptionBudget forbids the same drain, and
/// the job continues.
pub(crate) fn parallel_job_is_drained(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        for (role, pods, pod, how) in [
            ("worker", 2, "parallel-worker-0", "worker parallel-worker-"),
            (
                "launcher",
                1,
                "parallel-launcher",
                "Pod parallel-launcher was deleted while it ran",
            ),
        ] {
            fixture.create(&endless(fixture)?).await?;
            until("the ranks to run", PATIENCE, || async {
                let look = ["exec", "parallel-worker-1", "--", "ls", "/tmp/runs"];
                fixture.kubectl(&look).await.map(Seen::Yes)
            })
            .await?;
            let node = node_of(fixture, pod).await?;
            let selected = format!(
                "{}=parallel,{}={role}",
                labels::JOB_NAME_LABEL,
                labels::ROLE_LABEL
            );
            let before = uids(fixture).await?;
            budget_forbids_drain(fixture, &node, &selected, pods).await?;
            assert_eq!(uids(fixture).await?, before, "every Pod keeps running");
            drain(fixture, &node, &selected, DRAIN[3]).await?;
            fixture.kubectl(&["uncordon", &node]).await?;
            let status = fixture.once("parallel", JobState::Failed).await?;
            let said = status.last_message;
            assert!(
                said.contains(how) && said.contains("EvictionByEvictionAPI"),
                "{said}"
            );
            fixture
                .described("parallel", &[&said, "IPUJobFailed"])
                .await?;
            fixture.clear().await?;
        }
        Ok(())
    })
}

/// A parallel job whose ranks never end.
fn endless(fixture: &Fixture) -> Result<IPUJob, Failed> {
    let rank = "touch /tmp/runs; while :; do sleep 0.1; done";
    let command = ["mpirun", "-np", "2", "--bind-to", "none", "sh", "-c", rank];
    fixture.parallel(OpenMpi::Four, 0, &command)
}

/// Drains a node of the Pods that a label selects, under a PodDisruptionBudget that requires all of
/// them. A percentage would refer to the job's instances, which the scale of an IPUJob counts.
async fn budget_forbids_drain(
    fixture: &Fixture,
    node: &str,
    pods: &str,
    count: u32,
) -> Result<(), Failed> {
    let (selector, all) = (
        format!("--selector={pods}"),
        format!("--min-available={count}"),
    );
    let create = ["create", "poddisruptionbudget", "kept", &selector, &all];
    fixture.kubectl(&create).await?;
    let refused = drain(fixture, node, pods, "--timeout=10s").await;
    let refused = refused.err().ok_or("the drain went through")?.to_string();
    let rule = "would violate the pod's disruption budget";
    assert!(refused.contains(rule), "{refused}");
    fixture
        .kubectl(&["delete", "poddisruptionbudget", "kept"])
        .await?;
    Ok(())
}

/// Returns the UIDs of all Pods of the namespace.
async fn uids(fixture: &Fixture) -> Result<String, KubectlError> {
    let uids = "--output=jsonpath={.items[*].metadata.uid}";
    fixture.kubectl(&["get", "pods", uids]).await
}

/// Drains a node of the Pods that a label selects, as an admin does.
async fn drain(
    fixture: &Fixture,
    node: &str,
    pods: &str,
    limit: &str,
) -> Result<String, KubectlError> {
    let selector = format!("--pod-selector={pods}");
    let [daemons, empty, force, _] = DRAIN;
    let arguments = ["drain", node, &selector, daemons, empty, force, limit];
    fixture.kubectl(&arguments).await
}

/// Returns the number of resets of each partition.
async fn resets(fixture: &Fixture) -> Result<Vec<i64>, Failed> {
    let partitions = fixture.partitions().await?.into_iter();
    let statuses = partitions.filter_map(|partition| partition.status);
    Ok(statuses
        .map(|status| status.observed_reset_generation)
        .collect())
}
