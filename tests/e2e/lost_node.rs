//! A node becomes unreachable under a job: its Pod is force-deleted, and the job continues.

use std::fs;

use cluster::fault::Stopped;
use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use kube::ResourceExt;
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE};
use crate::pods::runs;

/// Kubernetes deletes the Pod of an unreachable node, and no kubelet ends it. The operator
/// force-deletes it, resets the partition and creates the Pod again, which runs once the node is
/// back.
pub(crate) fn pods_are_force_deleted(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let (_, second) = fixture.controllers();
        let mut job = fixture.example("06-inference.yaml")?;
        let name = job.name_any();
        let pod = &mut job.spec.workers.template.0["spec"];
        // The first controller's label does not match, so the partition is on the second one.
        pod["nodeSelector"] = json!({"ipunode": "pod2"});
        pod["terminationGracePeriodSeconds"] = json!(1);
        pod["tolerations"] = json!([{
            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 1,
        }]);
        pod["containers"] = json!([{
            "name": "main",
            "image": "ipu-operator.local/openmpi:4",
            "imagePullPolicy": "IfNotPresent",
            "command": ["bash", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"],
        }]);
        fixture.create(&job).await?;
        fixture.once(&name, JobState::Running).await?;
        let worker = naming::worker(&name, 0);
        let first = runs(fixture, &worker, None).await?;

        let stopped = stop_kubelet(&second.node)?;
        let what = "the operator to force-delete the Pod of the unreachable node";
        let events = until(what, PATIENCE, || async {
            let lost = ["get", "events", "--field-selector=reason=NodeLost"];
            let events = fixture.kubectl(&lost).await?;
            Ok::<_, KubectlError>(Seen::when(events, |events| events.contains("by force")))
        });
        let events = events.await?;
        if !events.contains(&second.node) {
            return Err(format!("{} is not named: {events}", second.node).into());
        }
        until("the partition to be reset", PATIENCE, || async {
            let partitions = fixture.partitions().await?;
            let status = partitions.first().and_then(|found| found.status.as_ref());
            let resets = status.map(|status| status.observed_reset_generation);
            Ok::<_, kube::Error>(Seen::when(resets, |resets| *resets == Some(1)))
        })
        .await?;

        drop(stopped);
        runs(fixture, &worker, Some(&first)).await?;
        fixture.delete_and_leave_nothing("06-inference.yaml").await
    })
}

/// Stops the kubelet of a node.
fn stop_kubelet(node: &str) -> Result<Stopped, Failed> {
    Ok(Stopped::process(kubelet_of(node)?)?)
}

/// Returns the process of the kubelet of a node.
pub(crate) fn kubelet_of(node: &str) -> Result<i32, Failed> {
    let of_node = |command: &[u8]| {
        let command = String::from_utf8_lossy(command);
        let mut words = command.split('\0');
        words.next().is_some_and(|word| word.ends_with("/kubelet"))
            && words.any(|word| word.starts_with("--kubeconfig=") && word.contains(node))
    };
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        // A process that has just ended is not the kubelet.
        let Ok(command) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        if of_node(&command) {
            return Ok(entry.file_name().to_string_lossy().parse()?);
        }
    }
    Err(format!("no kubelet of node {node} runs").into())
}
