//! IPUJobs in a queue of the real Kueue, and a JobSet of the real JobSet controller, on real nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::wait::{Seen, until, within};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tests::kueue::apply;
use tests::kueue::objects::{QUEUE_LABEL, cluster_queue, local_queue, resource_flavor};
use tests::kueue::workload::{Workload, of_job, workloads};

use crate::fixture::{Fixture, PATIENCE};
use crate::managers::delete_queues;

/// Name of the ClusterQueue, and of its LocalQueue.
const QUEUE: &str = "team";

/// Name of the flavor of all nodes.
const FLAVOR: &str = "any";

/// Median of the time until another job runs on the IPUs of an evicted job.
const HANDOVER: Duration = Duration::from_secs(3);

/// Two jobs, and quota for one: the second waits and names the reason, and runs when the first is
/// evicted. The controller is killed while it evicts the second.
pub(crate) fn two_jobs_share_a_quota(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let client = &fixture.operated.client;
        for object in [
            resource_flavor(FLAVOR, &[]),
            cluster_queue(QUEUE, &[(FLAVOR, 4)]),
            local_queue("default", QUEUE, QUEUE),
        ] {
            apply(client, &object).await?;
        }
        once_noticed(fixture).await?;
        fixture.create(&queued(fixture, "first")?).await?;
        fixture.once("first", JobState::Running).await?;
        fixture.create(&queued(fixture, "second")?).await?;
        fixture
            .described("second", &["insufficient unused quota"])
            .await?;

        set_active(client, "first", false).await?;
        let second = fixture.once("second", JobState::Running);
        within("the next job of a queue runs", HANDOVER, second).await?;
        let first = once(client, "first", |one| one.admission().is_none()).await?;
        assert_eq!(first.reason("Evicted"), "Deactivated");

        set_active(client, "first", true).await?;
        set_active(client, "second", false).await?;
        fixture.kill_leading_controller().await?;
        fixture.once("first", JobState::Running).await?;
        fixture.once("second", JobState::Suspended).await?;
        fixture.webhooks_answer().await?;
        fixture.clear().await?;
        delete_queues(fixture).await
    })
}

/// Both Jobs of a JobSet get a partition each, and release it.
pub(crate) fn a_jobset_gets_its_ipus(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("jobset.json");
        std::fs::write(&file, jobset("pair").to_string())?;
        fixture.operated.kubectl.apply(&file).await?;
        let completed = [
            "wait",
            "--for=condition=Completed",
            "--timeout=180s",
            "jobset/pair",
        ];
        fixture.kubectl(&completed).await?;
        let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
        let of_set = ListParams::default().labels("jobset.sigs.k8s.io/jobset-name=pair");
        let pods = pods.list(&of_set).await?;
        let ids = pods.iter().map(|pod| {
            let id = pod.labels().get("graphcore.ai/partition-id");
            id.cloned().unwrap_or_default()
        });
        let ids: BTreeSet<String> = ids.collect();
        assert_eq!((pods.items.len(), ids.len()), (2, 2), "{ids:?}");
        fixture.once_no_partition().await?;
        fixture.operated.kubectl.delete(&file).await?;
        Ok(())
    })
}

/// Waits until a new job with a queue is suspended.
async fn once_noticed(fixture: &Fixture) -> Result<(), Failed> {
    let jobs: Api<IPUJob> = Api::default_namespaced(fixture.operated.client.clone());
    let probe = queued(fixture, "probe")?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    until("the operator to notice Kueue", PATIENCE, || async {
        let created = jobs.create(&dry_run, &probe).await?;
        Ok::<_, kube::Error>(Seen::when(created.spec.suspend, |suspend| {
            *suspend == Some(true)
        }))
    })
    .await?;
    Ok(())
}

/// A queued job of 4 IPUs, which runs until SIGTERM.
fn queued(fixture: &Fixture, name: &str) -> Result<IPUJob, Failed> {
    let mut job = fixture.example("01-single-worker.yaml")?;
    job.metadata.name = Some(name.to_owned());
    let label = (QUEUE_LABEL.to_owned(), QUEUE.to_owned());
    job.metadata.labels = Some(BTreeMap::from([label]));
    let pod = &mut job.spec.workers.template.0["spec"];
    pod["terminationGracePeriodSeconds"] = json!(1);
    pod["containers"][0]["args"] = json!(["sleep 3600"]);
    // Kueue writes the same quantities as `50m` and `64Mi`.
    pod["containers"][0]["resources"] = json!({"requests": {"cpu": "0.05", "memory": "65536Ki"}});
    Ok(job)
}

/// Returns the Workload of a job once it `is_so`.
async fn once(
    client: &Client,
    job: &str,
    is_so: impl Fn(&Workload) -> bool,
) -> Result<Workload, Failed> {
    let found = until(format!("the Workload of {job}"), PATIENCE, || async {
        let found = of_job(client, "default", job).await?;
        let seen = format!("{found:?}");
        let found = found.into_iter().find(&is_so);
        Ok::<_, kube::Error>(found.map_or(Seen::NotYet(seen), Seen::Yes))
    });
    Ok(found.await?)
}

/// Deactivates the Workload of a job, or activates it again.
async fn set_active(client: &Client, job: &str, active: bool) -> Result<(), Failed> {
    let workload = once(client, job, |_| true).await?;
    let patch = Patch::Merge(json!({"spec": {"active": active}}));
    let params = PatchParams::default();
    workloads(client, "default")
        .patch(&workload.name(), &params, &patch)
        .await?;
    Ok(())
}

/// A JobSet of two Jobs, each of one Pod that checks its partition and ends.
fn jobset(name: &str) -> Value {
    let job = |name: &str| {
        json!({
            "name": name,
            "template": {"spec": {
                "backoffLimit": 0,
                "template": {
                    "metadata": {"annotations": {"graphcore.ai/ipu": "4"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{
                            "name": "main",
                            "image": "ipu-operator.local/openmpi:4",
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["sh", "-c", "test -n \"$IPUOF_VIPU_API_PARTITION_ID\""],
                        }],
                    },
                },
            }},
        })
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [job("one"), job("two")]},
    })
}
