//! The life of a release under running jobs: tested with `helm test`, upgraded to two controllers,
//! rolled back, uninstalled, and installed again.

use std::collections::BTreeSet;

use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use harness::demo::{KubectlError, partitions_of};
use harness::operator::NAMESPACE;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE};
use crate::released_guests;
use crate::unaffected::Live;

/// The Lease of the controllers.
const LEASE: &str = "ipu-operator-controller-manager";

/// A job without a launcher.
pub(crate) const SERVICE: &str = "job-inference-1";

/// `helm test` runs a job, reports it, and leaves no object of it.
pub(crate) fn is_tested(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let test = ["test", NAMESPACE, "--logs", "--timeout", "120s"];
        let said = fixture.release.run(&test)?;
        for part in ["Succeeded", "the job ran, and its partition was released"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        fixture.facts().nothing_in_the_api(PATIENCE).await?;
        Ok(())
    })
}

/// Jobs run through all changes of the release, and complete at their end. The guests of the
/// previous release decide after the upgrade.
pub(crate) fn lives_under_jobs(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let lived = live(fixture).await;
        if lived.is_err() {
            // Without an operator, the finalizers of the jobs would remain.
            fixture.release.install()?;
            released_guests::delete(fixture).await?;
        }
        lived
    })
}

async fn live(fixture: &Fixture) -> Result<(), Failed> {
    start_jobs(fixture).await?;
    released_guests::activate(fixture).await?;
    let before = Live::now(fixture).await?;
    let new = upgraded_under(fixture, &before).await?;
    released_guests::decide(fixture).await?;
    released_guests::delete(fixture).await?;
    leader_dies_while_a_job_starts(fixture).await?;
    before
        .is_undisturbed_by(fixture, "the death of the leader")
        .await?;

    fixture
        .release
        .run(&["rollback", NAMESPACE, "--wait", "--timeout", "180s"])?;
    once_replaced(fixture, &new, 3).await?;
    before.is_undisturbed_by(fixture, "helm rollback").await?;

    fixture.release.run(&["uninstall", NAMESPACE, "--wait"])?;
    before.is_undisturbed_by(fixture, "helm uninstall").await?;
    keeps_what_jobs_need(fixture, &before).await?;
    finish_the_parallel_job(fixture).await?;
    fixture.release.install()?;
    picks_up(fixture, &before).await
}

/// One job with a launcher, whose ranks run until a request to end, and one service.
pub(crate) async fn start_jobs(fixture: &Fixture) -> Result<(), Failed> {
    let rank = "touch /tmp/runs; until [ -e /tmp/go ]; do sleep 0.2; done";
    let command = ["mpirun", "-np", "2", "--bind-to", "none", "sh", "-c", rank];
    fixture
        .create(&fixture.parallel(OpenMpi::Four, 0, &command)?)
        .await?;
    let mut service = fixture.example("06-inference.yaml")?;
    service.spec.workers.template.0["spec"]["containers"] = json!([{
        "name": "main",
        "image": "ipu-operator.local/openmpi:4",
        "imagePullPolicy": "IfNotPresent",
        "command": ["bash", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"],
    }]);
    fixture.create(&service).await?;
    fixture.once(SERVICE, JobState::Running).await?;
    until("the ranks to run on both workers", PATIENCE, || async {
        let look = ["exec", "parallel-worker-1", "--", "ls", "/tmp/runs"];
        fixture.kubectl(&look).await.map(Seen::Yes)
    })
    .await?;
    fixture.once("parallel", JobState::Running).await?;
    Ok(())
}

/// Upgrades the release so that both processes are replaced, with two replicas of each, under
/// running jobs. Returns the UIDs of the new Pods.
pub(crate) async fn upgraded_under(
    fixture: &Fixture,
    before: &Live,
) -> Result<BTreeSet<String>, Failed> {
    let old = operators_pods(fixture).await?;
    let values = [
        "controller.replicas=2",
        "controller.develLogs=true",
        "vipuProxy.logLevel=5",
    ];
    fixture.release.upgrade(&values)?;
    let new = once_replaced(fixture, &old, 4).await?;
    before.is_undisturbed_by(fixture, "helm upgrade").await?;
    Ok(new)
}

/// Returns the UIDs of the operator's own Pods, including terminating ones.
pub(crate) async fn operators_pods(fixture: &Fixture) -> Result<BTreeSet<String>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(fixture.operated.client.clone(), NAMESPACE);
    let processes = "app.kubernetes.io/component in (controller,vipu-proxy)";
    let found = pods.list(&ListParams::default().labels(processes)).await?;
    Ok(found.iter().filter_map(ResourceExt::uid).collect())
}

/// Returns the UIDs of the operator's Pods, once there are this many and none of the old ones is
/// left.
pub(crate) async fn once_replaced(
    fixture: &Fixture,
    old: &BTreeSet<String>,
    count: usize,
) -> Result<BTreeSet<String>, Failed> {
    let what = format!("{count} new Pods of the operator instead of the old ones");
    let found = until(what, PATIENCE, || async {
        let now = operators_pods(fixture).await?;
        Ok::<_, kube::Error>(Seen::when(now, |now| {
            now.len() == count && now.is_disjoint(old)
        }))
    });
    Ok(found.await?)
}

/// Kills the leader of two controllers after it has requested the partition of the job. Deletes its
/// whole Pod once the job's Pod has a node. The other controller continues both times.
async fn leader_dies_while_a_job_starts(fixture: &Fixture) -> Result<(), Failed> {
    let file = "01-single-worker.yaml";
    let job = fixture.apply(file).await?;
    until("the job to ask for a partition", PATIENCE, || async {
        let partitions = fixture.partitions().await?;
        let mut owners = partitions.iter().map(|found| &found.spec.owner.name);
        Ok::<_, kube::Error>(Seen::when(
            owners.any(|owner| *owner == job.name),
            |asked| *asked,
        ))
    })
    .await?;
    fixture.kill_leading_controller().await?;
    fixture.facts().placed(&job, PATIENCE).await?;
    let leader = fixture.leader(LEASE).await?.unwrap_or_default();
    let at_once = ["--force", "--grace-period=0", "--namespace", NAMESPACE];
    fixture
        .kubectl(&[&["delete", "pod", &leader], &at_once[..]].concat())
        .await?;
    fixture.facts().completed(&job, PATIENCE).await?;
    let now = fixture.leader(LEASE).await?;
    assert!(
        now.is_some_and(|now| now != leader),
        "{leader} is still the leader"
    );
    fixture.kubectl(&["delete", "ipujob", &job.name]).await?;
    fixture.webhooks_answer().await?;
    let deployment = format!("deployment/{LEASE}");
    let status = ["rollout", "status", &deployment, "--namespace", NAMESPACE];
    fixture.kubectl(&status).await?;
    Ok(())
}

/// Checks the objects that must exist while there is no operator.
async fn keeps_what_jobs_need(fixture: &Fixture, before: &Live) -> Result<(), Failed> {
    let definitions = [
        "ipujobs",
        "ipupartitions",
        "ipupolicies",
        "vipucontrollers",
        "ipuaccountings",
    ];
    let definitions = definitions.map(|kind| format!("{kind}.graphcore.ai"));
    let mut get = vec!["get", "customresourcedefinitions", "--output=name"];
    get.extend(definitions.iter().map(String::as_str));
    fixture.kubectl(&get).await?;

    let maps: Api<ConfigMap> = Api::namespaced(fixture.operated.client.clone(), NAMESPACE);
    let tracker = maps.get("ipu-partitions-tracker").await?;
    let tracked = format!("{:?}", tracker.data);
    let mut there = Vec::new();
    for controller in &fixture.operated.controllers {
        there.extend(partitions_of(controller).await?);
    }
    let ids = before.partitions.values();
    for id in ids.filter_map(|fact| fact.id.as_ref()) {
        assert!(tracked.contains(id), "the tracker has no {id}: {tracked}");
        assert!(there.contains(id), "{id} was released; left: {there:?}");
    }
    Ok(())
}

/// Requests the end of the ranks of the parallel job.
pub(crate) async fn end_the_ranks(fixture: &Fixture) -> Result<(), Failed> {
    for worker in ["parallel-worker-0", "parallel-worker-1"] {
        fixture
            .kubectl(&["exec", worker, "--", "touch", "/tmp/go"])
            .await?;
    }
    Ok(())
}

/// Ends the program, and with it the launcher, while there is no operator.
async fn finish_the_parallel_job(fixture: &Fixture) -> Result<(), Failed> {
    end_the_ranks(fixture).await?;
    until("the launcher to end", PATIENCE, || async {
        let phase = "--output=jsonpath={.status.phase}";
        let look = ["get", "pod", "parallel-launcher", phase];
        let phase = fixture.kubectl(&look).await?;
        Ok::<_, KubectlError>(Seen::when(phase, |phase| phase == "Succeeded"))
    })
    .await?;
    let state = fixture.job("parallel").await?.status.unwrap_or_default();
    assert_eq!(
        state.launcher_status,
        JobState::Running,
        "there is no operator"
    );
    Ok(())
}

/// The new operator records the end that happened while there was none, and releases that
/// partition. The service keeps its Pods and its partition.
async fn picks_up(fixture: &Fixture, before: &Live) -> Result<(), Failed> {
    fixture.once("parallel", JobState::Completed).await?;
    until(
        "the service alone to have a partition",
        PATIENCE,
        || async {
            let partitions = fixture.partitions().await?;
            let owners = partitions.into_iter().map(|found| found.spec.owner.name);
            let owners: Vec<String> = owners.collect();
            Ok::<_, kube::Error>(Seen::when(owners, |owners| *owners == [SERVICE]))
        },
    )
    .await?;
    let service = before.of_job(SERVICE);
    service.is_undisturbed_by(fixture, "helm install").await?;
    fixture.kubectl(&["delete", "ipujob", "parallel"]).await?;
    fixture.delete_and_leave_nothing("06-inference.yaml").await
}
