//! A node falls silent under a job: its Pod is let go, and the job goes on.

use std::fs;

use ipu_operator::api::ipujob_status::JobState;
use ipu_operator::names;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tests::demo::KubectlError;
use tests::wait::{Seen, until};

use crate::scene::{PATIENCE, Scene};

/// Kubernetes deletes the Pod of a silent node, and nobody there ends it. The operator gives it up,
/// has the partition reset and makes the Pod anew, which runs once the node is back.
pub(crate) fn lets_its_pods_go(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let (_, second) = scene.controllers();
        let mut job = scene.example("06-inference.yaml")?;
        let name = job.name_any();
        let pod = &mut job.spec.workers.template.0["spec"];
        // The first controller's label contradicts it, so the partition is the second one's.
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
        scene.create(&job).await?;
        scene.once(&name, JobState::Running).await?;
        let first = running(scene, &name, None).await?;

        let silent = Silent::node(&second.node)?;
        let what = "the operator to give up the Pod of the silent node";
        let events = until(what, PATIENCE, || async {
            let lost = ["get", "events", "--field-selector=reason=NodeLost"];
            let events = scene.kubectl(&lost).await?;
            Ok::<_, KubectlError>(Seen::when(events, |events| events.contains("by force")))
        });
        let events = events.await?;
        if !events.contains(&second.node) {
            return Err(format!("{} is not named: {events}", second.node).into());
        }
        until("the partition to be reset", PATIENCE, || async {
            let partitions = scene.partitions().await?;
            let status = partitions.first().and_then(|found| found.status.as_ref());
            let resets = status.map(|status| status.observed_reset_generation);
            Ok::<_, kube::Error>(Seen::when(resets, |resets| *resets == Some(1)))
        })
        .await?;

        drop(silent);
        running(scene, &name, Some(&first)).await?;
        scene.delete_and_leave_nothing("06-inference.yaml").await
    })
}

/// The UID of the first worker once it runs and is another than before.
async fn running(scene: &Scene, job: &str, before: Option<&str>) -> Result<String, Failed> {
    let pods: Api<Pod> = Api::default_namespaced(scene.operated.client.clone());
    let worker = names::worker(job, 0);
    let found = until(format!("{worker} to run"), PATIENCE, || async {
        let pod = pods.get_opt(&worker).await?.unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        let uid = pod.uid().filter(|uid| Some(uid.as_str()) != before);
        Ok::<_, kube::Error>(match (uid, phase.as_deref()) {
            (Some(uid), Some("Running")) => Seen::Yes(uid),
            other => Seen::NotYet(format!("{other:?}")),
        })
    });
    Ok(found.await?)
}

/// A node whose kubelet is stopped, until this is dropped.
struct Silent(Pid);

impl Silent {
    fn node(name: &str) -> Result<Self, Failed> {
        let of_node = |command: &[u8]| {
            let command = String::from_utf8_lossy(command);
            let mut words = command.split('\0');
            words.next().is_some_and(|word| word.ends_with("/kubelet"))
                && words.any(|word| word.starts_with("--kubeconfig=") && word.contains(name))
        };
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            // One that ends meanwhile is not the one that is looked for.
            let Ok(command) = fs::read(entry.path().join("cmdline")) else {
                continue;
            };
            if of_node(&command) {
                let kubelet = Pid::from_raw(entry.file_name().to_string_lossy().parse()?);
                kill(kubelet, Signal::SIGSTOP)?;
                return Ok(Self(kubelet));
            }
        }
        Err(format!("no kubelet of node {name} runs").into())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // One that was ended together with the cluster needs nothing more.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}
