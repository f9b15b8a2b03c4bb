//! The requests of one step to the API server, in their order.

use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipujob::IPUJob;
use ipu_api::queueing::QUEUE_LABEL;
use ipu_runtime::work_queue::Requeue;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::cluster::{self, Cluster};
use super::fixtures::{JobFixture, parallel};
use crate::context::Context;
use crate::job_object::{self, JobRef};
use crate::{step, watches};

struct Fixture {
    cluster: Cluster,
    context: Context,
    job: JobRef,
}

impl Fixture {
    fn new(job: &IPUJob) -> Self {
        let cluster = Cluster::default();
        let (context, job) = (cluster.context(), cluster.submit(job));
        Self {
            cluster,
            context,
            job,
        }
    }

    /// One reconcile, after the watches have reported everything. Returns its requests.
    async fn step(&self) -> Vec<String> {
        self.cluster.deliver(&self.context);
        self.step_as_it_is().await
    }

    async fn step_as_it_is(&self) -> Vec<String> {
        step::step(&self.context, &self.job).await.unwrap();
        self.cluster.asked()
    }

    /// Proxy and kubelet act until the job runs.
    async fn run(&self) {
        for _ in 0..6 {
            self.step().await;
            self.cluster.partitions_ready();
            self.cluster.pods_run();
        }
        self.step().await;
    }
}

#[tokio::test]
async fn the_status_says_that_the_partition_is_used_before_the_first_pod_is_made() {
    let fixture = Fixture::new(&IPUJob::sample().workers("2"));
    fixture.step().await;
    fixture.cluster.partitions_ready();
    let asked = fixture.step().await;
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    assert_eq!(
        asked,
        [
            "PUT /namespaces/default/ipujobs/sample/status",
            "POST /api/v1/namespaces/default/pods",
            "POST /api/v1/namespaces/default/pods",
        ]
    );
    let status = &fixture.cluster.object(&cluster::job("sample"))["status"];
    assert_eq!(status["run"]["used"], json!({"0": "p-0/0"}));
}

#[tokio::test]
async fn a_worker_that_ran_beside_a_refused_one_is_followed_by_a_reset() {
    let fixture = Fixture::new(&IPUJob::sample().workers("2"));
    fixture.step().await;
    fixture.cluster.partitions_ready();
    fixture.cluster.refuse(&["sample-worker-1"]);
    for _ in 0..3 {
        fixture.step().await;
        fixture.cluster.pods_run();
    }
    let asked = fixture.step().await;
    assert_eq!(
        asked,
        ["POST /api/v1/namespaces/default/pods"],
        "it is tried again, and no more"
    );
    fixture.cluster.remove(&cluster::pod("sample-worker-0"));
    let asked = fixture.step().await;
    let resets = asked
        .iter()
        .filter(|asked| asked.starts_with("PATCH /ipupartitions/"));
    assert_eq!(resets.count(), 1, "{asked:?}");
    assert!(
        !asked.iter().any(|asked| asked.starts_with("POST")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn pods_whose_creation_fails_are_not_counted() {
    let fixture = Fixture::new(&IPUJob::sample().workers("2"));
    fixture.step().await;
    fixture.cluster.partitions_ready();
    fixture.cluster.fail(&["sample-worker-0"]);
    for _ in 0..2 {
        fixture.cluster.deliver(&fixture.context);
        let failed = step::step(&fixture.context, &fixture.job).await;
        assert!(failed.is_err(), "it is tried again");
        let status = &fixture.cluster.object(&cluster::job("sample"))["status"];
        assert_eq!(status["currentReplicas"], 0);
        assert_eq!(status["workersStatus"]["active"], 0);
    }
    let asked = fixture.cluster.asked();
    let writes = asked.iter().filter(|asked| asked.ends_with("/status"));
    assert_eq!(writes.count(), 2, "{asked:?}");
}

#[tokio::test]
async fn a_lost_answer_costs_no_reset_unless_the_pod_is_gone_by_then() {
    for is_gone in [false, true] {
        let fixture = Fixture::new(&IPUJob::sample().workers("2"));
        fixture.step().await;
        fixture.cluster.partitions_ready();
        fixture.cluster.deliver(&fixture.context);
        fixture.cluster.lose_answers(&["sample-worker-1"]);
        let lost = step::step(&fixture.context, &fixture.job).await;
        assert!(lost.is_err(), "it is tried again");
        fixture.cluster.lose_answers(&[]);
        if is_gone {
            fixture.cluster.deliver(&fixture.context);
            fixture.cluster.remove(&cluster::pod("sample-worker-1"));
        }
        fixture.cluster.asked();
        for _ in 0..4 {
            fixture.step().await;
        }
        let partitions = fixture.cluster.partitions();
        let resets = &partitions[0]["spec"]["resetGeneration"];
        assert_eq!(*resets, i32::from(is_gone), "gone: {is_gone}");
    }
}

#[tokio::test]
async fn no_reset_is_asked_for_because_the_watch_of_pods_is_late() {
    let fixture = Fixture::new(&IPUJob::sample());
    fixture.run().await;
    // As if a list that the API server served from an old cache had lost the Pod.
    let views = &fixture.context.views;
    for event in [Event::Init, Event::<Pod>::InitDone] {
        views.pods.apply_event(event);
    }
    let asked = fixture.step_as_it_is().await;
    assert!(
        !asked.iter().any(|asked| asked.contains("ipupartitions")),
        "{asked:?}"
    );
    assert!(
        fixture.step_as_it_is().await.is_empty(),
        "it waits for the watch"
    );
    let asked = fixture.step().await;
    let but_the_status = asked.iter().filter(|asked| !asked.starts_with("PUT "));
    assert_eq!(but_the_status.count(), 0, "{asked:?}");
}

#[tokio::test]
async fn files_of_a_running_job_are_read_again_only_after_an_edit() {
    let fixture = Fixture::new(&parallel());
    fixture.run().await;
    for _ in 0..5 {
        assert_eq!(fixture.step().await, [""; 0]);
    }
    fixture.cluster.edit_rights();
    let asked = fixture.step().await;
    let reads = asked
        .iter()
        .filter(|asked| asked.starts_with("GET"))
        .count();
    let writes: Vec<_> = asked
        .iter()
        .filter(|asked| !asked.starts_with("GET"))
        .collect();
    assert_eq!(reads, 1, "{asked:?}");
    assert!(
        matches!(&writes[..], [write] if write.contains("roles/")),
        "{asked:?}"
    );
    assert_eq!(fixture.step().await, [""; 0]);
}

#[tokio::test]
async fn a_reconcile_does_not_wait_for_events() {
    let fixture = Fixture::new(&IPUJob::sample());
    fixture.cluster.forget_events();
    let steps = tokio::time::timeout(Duration::from_secs(20), fixture.run());
    steps
        .await
        .expect("nobody answers events, and the job goes on");
    let status = &fixture.cluster.object(&cluster::job("sample"))["status"];
    assert_eq!(status["launcherStatus"], "Running");
}

#[tokio::test]
async fn a_pod_of_a_job_that_another_controller_manages_is_left_alone() {
    for manager in [None, Some("example.com/other")] {
        let mut job = IPUJob::sample();
        job.spec.managed_by = manager.map(str::to_owned);
        let fixture = Fixture::new(&job);
        let mut pod = json!({
            "metadata": cluster::owned_by(&job),
            "spec": {"nodeName": "lost", "containers": [{"name": "main"}]},
        });
        pod["metadata"]["name"] = "sample-worker-0".into();
        pod["metadata"]["namespace"] = "default".into();
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        fixture.cluster.put(&cluster::pod("sample-worker-0"), pod);
        let node = json!({
            "metadata": {"name": "lost"},
            "status": {"conditions": [{
                "type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        fixture.cluster.put("/api/v1/nodes/lost", node);
        let asked = fixture.step().await;
        let deleted = asked.iter().any(|asked| asked.starts_with("DELETE"));
        assert_eq!(deleted, manager.is_none(), "{asked:?}");
    }
}

#[tokio::test]
async fn a_job_in_a_queue_starts_by_its_admission_and_not_by_its_spec_or_its_annotations() {
    let mut job = IPUJob::sample().suspend(false);
    let one = |key: &str, value: &str| Some([(key.to_owned(), value.to_owned())].into());
    job.metadata.labels = one(QUEUE_LABEL, "team");
    // Names of an early version, which users could set.
    job.metadata.annotations = one("graphcore.ai/reserve-partitions", "true");
    let fixture = Fixture::new(&job);
    let path = cluster::job("sample");
    let admit = |admission: &Value| {
        fixture
            .cluster
            .change(&path, &json!({"status": {"admission": admission}}));
    };
    fixture.run().await;
    assert!(fixture.cluster.partitions().is_empty());
    let worker = cluster::pod("sample-worker-0");
    assert_eq!(fixture.cluster.object(&worker), Value::Null);
    let message = fixture.cluster.object(&path)["status"]["lastMessage"].clone();
    assert!(message.as_str().unwrap().contains("Kueue"), "{message}");

    let worker_set = json!({"name": "worker", "nodeSelector": {"pool": "a"}});
    admit(&json!({"podSets": [worker_set]}));
    fixture.run().await;
    let pod = fixture.cluster.object(&worker);
    assert_eq!(pod["spec"]["nodeSelector"]["pool"], "a");
    let status = fixture.cluster.object(&path)["status"].clone();
    assert_eq!(status["launcherStatus"], "Running");
    assert_eq!(status["admission"]["podSets"], json!([worker_set]));

    // An earlier version of the operator has dropped the field.
    admit(&Value::Null);
    let asked = fixture.step().await;
    assert_eq!(deletes(&asked), 0, "{asked:?}");
    // `ipu-kueue` has stopped it, and a user has resumed it.
    let stopped = json!({"status": {"admission": null, "launcherStatus": "Suspended"}});
    fixture.cluster.change(&path, &stopped);
    let asked = fixture.step().await;
    assert_ne!(deletes(&asked), 0, "{asked:?}");
    fixture.run().await;
    assert!(fixture.cluster.partitions().is_empty());
    assert_eq!(fixture.cluster.object(&worker), Value::Null);
}

#[tokio::test]
async fn the_size_of_an_admission_limits_a_job_as_long_as_it_has_it() {
    let mut job = IPUJob::sample().suspend(false);
    job.metadata.labels = Some([(QUEUE_LABEL.to_owned(), "team".to_owned())].into());
    let fixture = Fixture::new(&job);
    let path = cluster::job("sample");
    fixture.run().await;
    let admission = json!({"podSets": [{"name": "worker", "count": 1}]});
    let admitted = json!({"status": {"admission": admission}});
    fixture.cluster.change(&path, &admitted);
    fixture.run().await;
    let grown = json!({"spec": {"jobInstances": 2}});
    fixture.cluster.change(&path, &grown);
    fixture.run().await;
    assert_eq!(fixture.cluster.partitions().len(), 1);
    let status = fixture.cluster.object(&path)["status"].clone();
    assert_eq!(status["admission"], admission);

    let outside = json!({"metadata": {"labels": {QUEUE_LABEL: null}}});
    fixture.cluster.change(&path, &outside);
    fixture.run().await;
    assert_eq!(fixture.cluster.partitions().len(), 1, "it keeps its quota");
    let ungranted = json!({"status": {"admission": null}});
    fixture.cluster.change(&path, &ungranted);
    fixture.run().await;
    assert_eq!(fixture.cluster.partitions().len(), 2);
}

fn deletes(asked: &[String]) -> usize {
    let deletes = asked.iter().filter(|asked| asked.starts_with("DELETE"));
    deletes.count()
}

#[tokio::test]
async fn a_job_that_runs_before_it_is_in_a_queue_continues() {
    let job = IPUJob::sample().suspend(false);
    let fixture = Fixture::new(&job);
    let path = cluster::job("sample");
    fixture.run().await;
    let running = fixture.cluster.object(&path);
    assert_eq!(running["status"]["launcherStatus"], "Running");
    // As an upgrade from a version without queues finds it.
    let queued = json!({"metadata": {"labels": {QUEUE_LABEL: "team"}}});
    fixture.cluster.change(&path, &queued);
    let asked = fixture.step().await;
    assert_eq!(deletes(&asked), 0, "{asked:?}");
    let state = fixture.cluster.object(&path)["status"]["launcherStatus"].clone();
    assert_eq!(state, "Running");
}

#[tokio::test]
async fn nothing_is_remembered_of_a_job_that_is_gone() {
    let fixture = Fixture::new(&parallel());
    let (context, uid) = (&fixture.context, fixture.job.uid);
    fixture.run().await;
    assert!(context.remembers(uid));
    let object = fixture.cluster.object(&cluster::job("sample"));
    let deleted = Event::Delete(serde_json::from_value(object).unwrap());
    watches::apply_job_event(context, deleted);
    assert!(!context.remembers(uid));
    // A reconcile that was under way ends after that.
    context.verified.lock().begin(fixture.job.clone().into());
    context.forget_if_deleted(uid);
    assert!(!context.remembers(uid));
}

#[tokio::test]
async fn deleted_job_is_forgotten_although_its_role_exists() {
    let fixture = Fixture::new(&parallel());
    fixture.run().await;
    let Fixture {
        cluster,
        context,
        job,
    } = fixture;
    let context = Arc::new(context);
    cluster.remove(&cluster::job("sample"));
    // Its Role is still there, and a user could create one like it.
    cluster.deliver(&context);
    assert!(context.remembers(job.uid));
    let requeue = crate::reconcile(Arc::new(job.clone()), Arc::clone(&context)).await;
    assert!(matches!(requeue, Requeue::Never), "{requeue:?}");
    assert!(!context.remembers(job.uid));
}

#[test]
fn owner_reference_with_a_too_long_name_is_ignored() {
    let named = |length: usize| {
        let metadata = json!({"namespace": "default", "ownerReferences": [
            {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "name": "a".repeat(length), "uid": "u"},
        ]});
        job_object::owner(&serde_json::from_value(metadata).unwrap()).is_some()
    };
    assert!(named(253));
    assert!(!named(254), "the controller keeps the name in memory");
}

#[tokio::test]
async fn two_reconciles_of_one_moment_make_nothing_twice() {
    let fixture = Fixture::new(&parallel());
    fixture.step().await;
    fixture.cluster.partitions_ready();
    fixture.cluster.deliver(&fixture.context);
    // A second process has the same view, and is late.
    let second = fixture.cluster.context();
    fixture.cluster.deliver(&second);
    fixture.step_as_it_is().await;
    let outcome = step::step(&second, &fixture.job).await;
    assert!(outcome.is_err(), "what it read of the job is old");
    let asked = fixture.cluster.asked();
    let account = "GET /api/v1/namespaces/default/serviceaccounts/default";
    assert_eq!(
        asked,
        [account, "PUT /namespaces/default/ipujobs/sample/status"]
    );
}
