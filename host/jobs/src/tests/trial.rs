//! The Pods that are tried by a dry run, and the trial of a job's first worker before it requests
//! IPUs.

use ipu_api::ipujob::IPUJob;
use serde_json::{Value, json};

use super::cluster::{self, Cluster};
use super::fixtures::{JobFixture, mounted, settings};
use crate::context::Context;
use crate::job_object::JobRef;
use crate::step;
use crate::trial::pods;

#[test]
fn a_worker_and_the_launcher_are_tried() {
    let names = |job: &IPUJob| {
        let pods = pods(&job.object(), &settings()).into_iter();
        pods.filter_map(|pod| pod.usual.metadata.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&IPUJob::sample().workers("2")), ["sample-worker-0"]);
    let parallel = IPUJob::sample().workers("2").launcher(&["mpirun"]);
    assert_eq!(names(&parallel), ["sample-worker-0", "sample-launcher"]);
    let mut unnamed = IPUJob::sample();
    unnamed.metadata.name = None;
    assert_eq!(names(&unnamed), [""; 0]);
}

#[test]
fn a_job_of_another_cluster_and_an_unreadable_one_are_not_tried() {
    let mut job = IPUJob::sample().object();
    job["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    assert!(pods(&job, &settings()).is_empty());
    assert!(pods(&json!({"spec": {}}), &settings()).is_empty());
}

#[test]
fn the_launcher_is_tried_with_the_account_of_the_user_alone() {
    let mut job = IPUJob::sample().launcher(&["mpirun"]).object();
    let account = |job: &Value| {
        let launcher = pods(job, &settings()).pop().unwrap();
        launcher.usual.spec.unwrap().service_account_name
    };
    assert_eq!(account(&job), None, "the operator creates it later");
    job["spec"]["launcher"]["serviceAccountName"] = json!("nosuch");
    assert_eq!(account(&job).as_deref(), Some("nosuch"));
}

/// Reconciles a job a few times. Returns the last requeue delay in seconds.
async fn reconcile(cluster: &Cluster, context: &Context, job: &JobRef) -> Option<u64> {
    let mut delay = None;
    for _ in 0..3 {
        cluster.deliver(context);
        delay = step::step(context, job).await.unwrap();
    }
    delay.map(|delay| delay.as_secs())
}

#[tokio::test]
async fn a_job_whose_worker_is_refused_takes_no_ipus() {
    let cluster = Cluster::default();
    let job = IPUJob::sample();
    let (context, job) = (cluster.context(), cluster.submit(&job));
    cluster.refuse(&["sample-worker-0"]);
    assert_eq!(reconcile(&cluster, &context, &job).await, Some(15));
    assert!(cluster.partitions().is_empty());
    let status = cluster.object(&cluster::job("sample"))["status"].clone();
    let message = status["lastMessage"].as_str().unwrap();
    let expected = "no IPUs are requested, because the API server refused Pod sample-worker-0: ";
    assert!(message.starts_with(expected), "{message}");
    assert!(status["run"]["refusedSince"].is_null(), "{status}");
    // A quota is free now, or the admin has changed the namespace.
    cluster.refuse(&[]);
    reconcile(&cluster, &context, &job).await;
    assert_eq!(cluster.partitions().len(), 1);
}

#[tokio::test]
async fn a_job_whose_launcher_is_refused_takes_no_ipus() {
    let cluster = Cluster::default();
    let job = IPUJob::sample().launcher(&["mpirun"]);
    let (context, job) = (cluster.context(), cluster.submit(&job));
    cluster.refuse(&["sample-launcher"]);
    assert_eq!(reconcile(&cluster, &context, &job).await, Some(15));
    assert!(cluster.partitions().is_empty());
    let status = cluster.object(&cluster::job("sample"))["status"].clone();
    let message = status["lastMessage"].as_str().unwrap();
    let expected = "no IPUs are requested, because the API server refused Pod sample-launcher: ";
    assert!(message.starts_with(expected), "{message}");
    cluster.refuse(&[]);
    reconcile(&cluster, &context, &job).await;
    assert_eq!(cluster.partitions().len(), 1);
}

/// An API server that does not know image volumes accepts the Pod without the volume, and the Pod
/// could not start.
#[tokio::test]
async fn a_job_whose_agent_the_api_server_drops_takes_no_ipus() {
    let cluster = Cluster::default();
    let job = IPUJob::sample().launcher(&["mpirun"]);
    let (context, job) = (cluster.context_with(mounted()), cluster.submit(&job));
    cluster.drop_volumes(true);
    assert_eq!(reconcile(&cluster, &context, &job).await, Some(15));
    assert!(cluster.partitions().is_empty());
    let status = cluster.object(&cluster::job("sample"))["status"].clone();
    let message = status["lastMessage"].as_str().unwrap();
    let expected = "no IPUs are requested, because the API server refused Pod sample-worker-0: the API server drops \
                    spec.volumes[ipu-operator-agent].image, ";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("set agent.delivery "), "{message}");
    // The admin has upgraded Kubernetes.
    cluster.drop_volumes(false);
    reconcile(&cluster, &context, &job).await;
    assert_eq!(cluster.partitions().len(), 1);
}

/// The admin changes the setting, or another API server answers, when the job has a partition.
#[tokio::test]
async fn a_pod_whose_agent_the_api_server_drops_is_deleted() {
    let cluster = Cluster::default();
    let job = IPUJob::sample().launcher(&["mpirun"]);
    let (context, job) = (cluster.context_with(mounted()), cluster.submit(&job));
    reconcile(&cluster, &context, &job).await;
    cluster.drop_volumes(true);
    cluster.partitions_ready();
    reconcile(&cluster, &context, &job).await;
    let asked = cluster.asked();
    let count = |request: &str| asked.iter().filter(|asked| *asked == request).count();
    let deleted = count(&format!("DELETE {}", cluster::pod("sample-worker-0")));
    let created = count("POST /api/v1/namespaces/default/pods");
    assert!(deleted > 0 && created == deleted, "{asked:?}");
    let status = cluster.object(&cluster::job("sample"))["status"].clone();
    assert!(status["run"]["refusedSince"].is_string(), "{status}");
    cluster.drop_volumes(false);
    reconcile(&cluster, &context, &job).await;
    let pod = cluster.object(&cluster::pod("sample-worker-0"));
    assert_eq!(
        pod["spec"]["volumes"][0]["image"]["reference"],
        settings().launcher_image
    );
}

#[tokio::test]
async fn a_job_with_a_partition_is_not_tried() {
    let cluster = Cluster::default();
    let job = IPUJob::sample();
    let (context, job) = (cluster.context(), cluster.submit(&job));
    reconcile(&cluster, &context, &job).await;
    assert_eq!(cluster.partitions().len(), 1);
    cluster.refuse(&["sample-worker-0"]);
    cluster.partitions_ready();
    reconcile(&cluster, &context, &job).await;
    let status = cluster.object(&cluster::job("sample"))["status"].clone();
    assert!(status["run"]["refusedSince"].is_string(), "{status}");
}
