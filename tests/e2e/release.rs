//! The life of a release under jobs that run: tried by `helm test`, upgraded to two controllers, rolled back,
//! taken away, and installed again.

use std::collections::BTreeSet;

use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use lab::demo::{KubectlError, partitions_of};
use lab::operator::NAMESPACE;
use libtest_mimic::Failed;
use serde_json::json;

use crate::scene::{PATIENCE, Scene};
use crate::undisturbed::Live;

/// The Lease of the controllers.
const LEASE: &str = "ipu-operator-controller-manager";

/// A job without a launcher.
pub(crate) const SERVICE: &str = "job-inference-1";

/// `helm test` runs a job, says so, and leaves nothing of it.
pub(crate) fn is_tried(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let test = ["test", NAMESPACE, "--logs", "--timeout", "120s"];
        let said = scene.release.run(&test)?;
        for part in ["Succeeded", "the job ran, and its partition was released"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        scene.facts().nothing_in_the_api(PATIENCE).await?;
        Ok(())
    })
}

/// Jobs run on through all that an admin does to the release, and end when they are done.
pub(crate) fn lives_under_jobs(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let lived = live(scene).await;
        if lived.is_err() {
            // Without an operator nothing of the jobs would go.
            scene.release.install()?;
        }
        lived
    })
}

async fn live(scene: &Scene) -> Result<(), Failed> {
    start_jobs(scene).await?;
    let before = Live::now(scene).await?;
    let new = upgraded_under(scene, &before).await?;
    leader_dies_while_a_job_starts(scene).await?;
    before
        .is_undisturbed_by(scene, "the death of the leader")
        .await?;

    scene
        .release
        .run(&["rollback", NAMESPACE, "--wait", "--timeout", "180s"])?;
    once_replaced(scene, &new, 3).await?;
    before.is_undisturbed_by(scene, "helm rollback").await?;

    scene.release.run(&["uninstall", NAMESPACE, "--wait"])?;
    before.is_undisturbed_by(scene, "helm uninstall").await?;
    keeps_what_jobs_need(scene, &before).await?;
    finish_the_parallel_job(scene).await?;
    scene.release.install()?;
    picks_up(scene, &before).await
}

/// One job with a launcher whose ranks run until they are told, and one that serves.
pub(crate) async fn start_jobs(scene: &Scene) -> Result<(), Failed> {
    let rank = "touch /tmp/runs; until [ -e /tmp/go ]; do sleep 0.2; done";
    let command = ["mpirun", "-np", "2", "--bind-to", "none", "sh", "-c", rank];
    scene
        .create(&scene.parallel(OpenMpi::Four, 0, &command)?)
        .await?;
    let mut service = scene.example("06-inference.yaml")?;
    service.spec.workers.template.0["spec"]["containers"] = json!([{
        "name": "main",
        "image": "ipu-operator.local/openmpi:4",
        "imagePullPolicy": "IfNotPresent",
        "command": ["bash", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"],
    }]);
    scene.create(&service).await?;
    scene.once(SERVICE, JobState::Running).await?;
    until("the ranks to run on both workers", PATIENCE, || async {
        let look = ["exec", "parallel-worker-1", "--", "ls", "/tmp/runs"];
        scene.kubectl(&look).await.map(Seen::Yes)
    })
    .await?;
    scene.once("parallel", JobState::Running).await?;
    Ok(())
}

/// Upgrades the release so that both processes are replaced, to two replicas of each, under what lives.
/// Answers the UIDs of the new Pods.
pub(crate) async fn upgraded_under(
    scene: &Scene,
    before: &Live,
) -> Result<BTreeSet<String>, Failed> {
    let old = operators_pods(scene).await?;
    let values = [
        "controller.replicas=2",
        "controller.develLogs=true",
        "vipuProxy.logLevel=5",
    ];
    scene.release.upgrade(&values)?;
    let new = once_replaced(scene, &old, 4).await?;
    before.is_undisturbed_by(scene, "helm upgrade").await?;
    Ok(new)
}

/// The UIDs of the operator's own Pods, also of those that are ending.
pub(crate) async fn operators_pods(scene: &Scene) -> Result<BTreeSet<String>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(scene.operated.client.clone(), NAMESPACE);
    let processes = "app.kubernetes.io/component in (controller,vipu-proxy)";
    let found = pods.list(&ListParams::default().labels(processes)).await?;
    Ok(found.iter().filter_map(ResourceExt::uid).collect())
}

/// The UIDs of the operator's Pods, once they are so many and none of the old ones is left.
pub(crate) async fn once_replaced(
    scene: &Scene,
    old: &BTreeSet<String>,
    count: usize,
) -> Result<BTreeSet<String>, Failed> {
    let what = format!("{count} new Pods of the operator in the place of the old ones");
    let found = until(what, PATIENCE, || async {
        let now = operators_pods(scene).await?;
        Ok::<_, kube::Error>(Seen::when(now, |now| {
            now.len() == count && now.is_disjoint(old)
        }))
    });
    Ok(found.await?)
}

/// Of two controllers the leading one is killed once the job has asked for its partition, and its whole
/// Pod is taken away once the job's Pod has a node: the other one goes on.
async fn leader_dies_while_a_job_starts(scene: &Scene) -> Result<(), Failed> {
    let file = "01-single-worker.yaml";
    let job = scene.apply(file).await?;
    until("the job to ask for a partition", PATIENCE, || async {
        let partitions = scene.partitions().await?;
        let mut owners = partitions.iter().map(|found| &found.spec.owner.name);
        Ok::<_, kube::Error>(Seen::when(
            owners.any(|owner| *owner == job.name),
            |asked| *asked,
        ))
    })
    .await?;
    scene.kill_leading_controller().await?;
    scene.facts().placed(&job, PATIENCE).await?;
    let leader = scene.leader(LEASE).await?.unwrap_or_default();
    let at_once = ["--force", "--grace-period=0", "--namespace", NAMESPACE];
    scene
        .kubectl(&[&["delete", "pod", &leader], &at_once[..]].concat())
        .await?;
    scene.facts().completed(&job, PATIENCE).await?;
    let now = scene.leader(LEASE).await?;
    assert!(now.is_some_and(|now| now != leader), "{leader} leads still");
    scene.kubectl(&["delete", "ipujob", &job.name]).await?;
    scene.webhooks_answer().await?;
    let deployment = format!("deployment/{LEASE}");
    let status = ["rollout", "status", &deployment, "--namespace", NAMESPACE];
    scene.kubectl(&status).await?;
    Ok(())
}

/// What must be there while no operator is.
async fn keeps_what_jobs_need(scene: &Scene, before: &Live) -> Result<(), Failed> {
    let definitions = ["ipujobs", "ipupartitions", "ipupolicies"];
    let definitions = definitions.map(|kind| format!("{kind}.graphcore.ai"));
    let mut get = vec!["get", "customresourcedefinitions", "--output=name"];
    get.extend(definitions.iter().map(String::as_str));
    scene.kubectl(&get).await?;

    let maps: Api<ConfigMap> = Api::namespaced(scene.operated.client.clone(), NAMESPACE);
    let tracker = maps.get("ipu-partitions-tracker").await?;
    let tracked = format!("{:?}", tracker.data);
    let mut there = Vec::new();
    for controller in &scene.operated.controllers {
        there.extend(partitions_of(controller).await?);
    }
    let ids = before.partitions.values();
    for id in ids.filter_map(|fact| fact.id.as_ref()) {
        assert!(tracked.contains(id), "the tracker has no {id}: {tracked}");
        assert!(there.contains(id), "{id} was given back; left: {there:?}");
    }
    Ok(())
}

/// Tells the ranks of the parallel job to end.
pub(crate) async fn end_the_ranks(scene: &Scene) -> Result<(), Failed> {
    for worker in ["parallel-worker-0", "parallel-worker-1"] {
        scene
            .kubectl(&["exec", worker, "--", "touch", "/tmp/go"])
            .await?;
    }
    Ok(())
}

/// The program ends, and with it the launcher, though no operator sees it.
async fn finish_the_parallel_job(scene: &Scene) -> Result<(), Failed> {
    end_the_ranks(scene).await?;
    until("the launcher to end", PATIENCE, || async {
        let phase = "--output=jsonpath={.status.phase}";
        let look = ["get", "pod", "parallel-launcher", phase];
        let phase = scene.kubectl(&look).await?;
        Ok::<_, KubectlError>(Seen::when(phase, |phase| phase == "Succeeded"))
    })
    .await?;
    let state = scene.job("parallel").await?.status.unwrap_or_default();
    assert_eq!(state.launcher_status, JobState::Running, "nobody looks");
    Ok(())
}

/// The new operator writes down the end that nobody saw and gives that partition back; the service runs
/// on with what it had.
async fn picks_up(scene: &Scene, before: &Live) -> Result<(), Failed> {
    scene.once("parallel", JobState::Completed).await?;
    until(
        "the service alone to have a partition",
        PATIENCE,
        || async {
            let partitions = scene.partitions().await?;
            let owners = partitions.into_iter().map(|found| found.spec.owner.name);
            let owners: Vec<String> = owners.collect();
            Ok::<_, kube::Error>(Seen::when(owners, |owners| *owners == [SERVICE]))
        },
    )
    .await?;
    let service = before.of_job(SERVICE);
    service.is_undisturbed_by(scene, "helm install").await?;
    scene.kubectl(&["delete", "ipujob", "parallel"]).await?;
    scene.delete_and_leave_nothing("06-inference.yaml").await
}
