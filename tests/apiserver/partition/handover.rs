//! A release that replaces an uninstalled one: the partitions of the old release keep their owners.

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::{IPUPartition, IPUPartitionStatus, PartitionPhase};
use ipu_api::labels;
use ipu_jobs::Shared;
use ipu_jobs::metrics::JobMetrics;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vipu_simulator::faults::Method;

use super::fixture::{Fixture, NAMESPACE, Replica, configuration, id, notebook};
use super::placement::get;
use crate::job::single;
use crate::job_fixture;

/// The namespace of the second release. If two webhook configurations were created in the same
/// second, the first by name is the older.
const SECOND: &str = "ipu-second";

/// The job controller of a release.
fn start_controller(fixture: &Fixture) -> JoinHandle<()> {
    let client = fixture.client.clone();
    tokio::spawn(async move {
        let metrics = JobMetrics::default();
        let run = ipu_jobs::run(
            client,
            job_fixture::settings(),
            Shared::default(),
            &metrics,
            CancellationToken::new(),
        );
        run.await.unwrap();
    })
}

/// Returns the only IPUPartition, once it has this phase.
async fn once_in(fixture: &Fixture, phase: PartitionPhase) -> IPUPartition {
    let is_so = |one: &IPUPartition| one.status.as_ref().map(|status| status.phase) == Some(phase);
    eventually(&format!("the partition is {phase:?}"), async || {
        let all = fixture
            .partitions()
            .list(&Default::default())
            .await
            .unwrap();
        let state = format!("{:?}", all.items);
        all.items.into_iter().find(is_so).ok_or(state)
    })
    .await
}

async fn body(fixture: &Fixture, path: &str) -> serde_json::Value {
    let answer = get(fixture.port, path).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

/// Data of a release for other releases, with the namespaces that it serves (empty: all): a webhook
/// configuration. Nothing calls its webhooks here.
pub(super) async fn announce(fixture: &Fixture, namespace: &str, scope: &str) {
    let object = json!({"metadata": {
        "name": configuration(namespace),
        "labels": {"app.kubernetes.io/part-of": "ipu-operator"},
        "annotations": {labels::OPERATOR_NAMESPACE: namespace, labels::WATCH_NAMESPACES: scope},
    }});
    let object: MutatingWebhookConfiguration = serde_json::from_value(object).unwrap();
    let configurations = Api::<MutatingWebhookConfiguration>::all(fixture.client.clone());
    configurations
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

/// Starts two releases, each with a proxy. The second one is inactive. Returns the proxy of the
/// first.
async fn install_second(fixture: &mut Fixture) -> Replica {
    announce(fixture, SECOND, "").await;
    let first = fixture.install_beside(SECOND).await;
    let conflicts = fixture.conflicts();
    let inactive = eventually("the second release is inactive", async || {
        Seen::when(conflicts.current(), |conflicts| !conflicts.is_empty())
    });
    let message = inactive.await[0].message();
    let names_first = message.contains(&configuration(NAMESPACE));
    assert!(names_first, "{message}");
    first
}

/// Uninstalls the first release.
async fn uninstall_first(fixture: &Fixture, proxy: Replica) {
    let leases = Api::<Lease>::namespaced(fixture.client.clone(), SECOND);
    let led = leases.get_opt("ipu-operator-vipu-proxy").await.unwrap();
    assert_eq!(led, None, "the second release is inactive");
    proxy.kill().await;
    let configurations = Api::<MutatingWebhookConfiguration>::all(fixture.client.clone());
    let name = configuration(NAMESPACE);
    configurations
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    fixture.conflicts().wait_none().await;
}

/// Submits a job, and returns its running Pod.
async fn running_pod(jobs: &Api<IPUJob>, pods: &Api<Pod>) -> Pod {
    let mnist: IPUJob = serde_json::from_value(single("mnist")).unwrap();
    jobs.create(&PostParams::default(), &mnist).await.unwrap();
    let pod = eventually("the job has a Pod", async || {
        pods.get_opt("mnist-worker-0").await.unwrap()
    })
    .await;
    let running = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let params = PatchParams::default();
    let running = Patch::Merge(&running);
    pods.patch_status("mnist-worker-0", &params, &running)
        .await
        .unwrap();
    pod
}

/// Waits until the job runs, and until the REST API lists its partition as the only one.
async fn runs_with_one_partition(fixture: &Fixture, jobs: &Api<IPUJob>) {
    let seen = eventually("the job is seen to run", async || {
        let job = jobs.get("mnist").await.unwrap();
        let status = serde_json::to_value(job.status).unwrap();
        Seen::when(status, |status| status["launcherStatus"] == "Running")
    });
    assert_eq!(seen.await["currentReplicas"], 1);
    let controllers = body(fixture, "/controllers").await;
    assert_eq!(controllers[0]["otherCount"], json!(0), "{controllers}");
    assert_eq!(controllers[0]["partitionCount"], json!(1), "{controllers}");
    let stats = body(fixture, "/stats").await;
    assert_eq!(stats["default"]["used"], json!(4), "{stats}");
}

/// Deletes the job. No kubelet runs its Pod, so nothing else ends it.
async fn delete_job(jobs: &Api<IPUJob>, pods: &Api<Pod>) {
    let at_once = DeleteParams::default().grace_period(0);
    jobs.delete("mnist", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the job is gone", async || {
        let _ = pods.delete("mnist-worker-0", &at_once).await;
        let job = jobs.get_opt("mnist").await.unwrap();
        Seen::when(job.map(|job| job.status), Option::is_none)
    })
    .await;
}

/// The second release watches while it is inactive, and continues without a restart when the first
/// one is uninstalled.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_keeps_partition_and_pod_when_another_release_takes_over() {
    let mut fixture = Fixture::without_proxy(&[16]).await;
    fixture.looks_for_releases = true;
    announce(&fixture, NAMESPACE, "").await;
    fixture.start_proxy().await;
    let controller = start_controller(&fixture);
    let jobs = Api::<IPUJob>::namespaced(fixture.client.clone(), "default");
    let pods = Api::<Pod>::namespaced(fixture.client.clone(), "default");
    let pod = running_pod(&jobs, &pods).await;
    let before = once_in(&fixture, PartitionPhase::Ready).await;

    let first = install_second(&mut fixture).await;
    controller.abort();
    uninstall_first(&fixture, first).await;
    let late = fixture.orphan(0, &notebook("late")).await;
    let controller = start_controller(&fixture);
    // Both controllers of the release work once this job has been created and deleted.
    let other = fixture.request("other", 4).await;
    fixture.once_in(&other, PartitionPhase::Ready).await;
    fixture.delete(&other).await;
    fixture.once_gone(&other).await;
    let ids = fixture.once_ids(
        "partitions without an owner are swept, whichever release created them",
        |ids| !ids[0].contains(&late),
    );
    assert_eq!(ids.await, [[id(&before)]]);

    let after = once_in(&fixture, PartitionPhase::Ready).await;
    let attempts = |one: &IPUPartition| one.status.clone().unwrap().attempts;
    assert_eq!(attempts(&after), attempts(&before));
    assert_eq!(fixture.calls(0, Method::CreatePartition), 2);
    let kept = pods.get("mnist-worker-0").await.unwrap();
    assert_eq!(kept.uid(), pod.uid());
    assert_eq!(kept.labels()[labels::PARTITION_ID_LABEL], id(&before));
    assert_eq!(kept.metadata.deletion_timestamp, None);
    runs_with_one_partition(&fixture, &jobs).await;
    delete_job(&jobs, &pods).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
    controller.abort();
}

/// The status without the place of its IPUs, which is reported some time after the others.
fn without_place(partition: &IPUPartition) -> IPUPartitionStatus {
    IPUPartitionStatus {
        first_ipu: None,
        ..partition.status.clone().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_moves_to_another_namespace_and_back_sweeps_its_remains() {
    let mut fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    for namespace in ["ipu-elsewhere", NAMESPACE] {
        let late = fixture.orphan(0, &notebook(namespace)).await;
        let what = format!("the release in {namespace} sweeps {late}");
        fixture.reinstall_in(namespace).await;
        fixture.once_ids(&what, |ids| ids[0] == [id(&ready)]).await;
        let now = fixture.partitions().get(&wanted.name_any()).await.unwrap();
        assert_eq!(without_place(&now), without_place(&ready));
    }
    fixture.delete(&wanted).await;
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}
