//! A reconcile that has read a job, and whose watch of IPUPartitions is late.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::cluster::{self, Cluster};
use super::fixtures::JobFixture;
use crate::context::Context;
use crate::job_object::JobRef;
use crate::step;

/// A job whose partition is in use.
async fn running(cluster: &Cluster) -> JobRef {
    let (leader, job) = (cluster.context(), cluster.submit(&IPUJob::sample()));
    for _ in 0..3 {
        cluster.deliver(&leader);
        step::step(&leader, &job).await.unwrap();
        cluster.partitions_ready();
        cluster.pods_run();
    }
    assert_eq!(used(cluster), json!({"0": "p-0/0"}));
    cluster.asked();
    job
}

/// The next leader. Its watches have reported everything but the IPUPartitions.
fn next_leader(cluster: &Cluster) -> Context {
    let next = cluster.context();
    cluster.deliver(&next);
    for event in [Event::Init, Event::<IPUPartition>::InitDone] {
        next.views.partitions.apply_event(event);
    }
    next
}

fn used(cluster: &Cluster) -> Value {
    cluster.object(&cluster::job("sample"))["status"]["run"]["used"].clone()
}

fn partition(cluster: &Cluster) -> String {
    let name = &cluster.partitions()[0]["metadata"]["name"];
    format!("/ipupartitions/{}", name.as_str().unwrap())
}

#[tokio::test]
async fn a_use_stays_recorded_while_the_watch_lacks_the_partition() {
    let cluster = Cluster::default();
    let job = running(&cluster).await;
    let next = next_leader(&cluster);
    step::step(&next, &job).await.unwrap();
    let asked = cluster.asked();
    assert_eq!(asked[0], format!("GET {}", partition(&cluster)));
    assert_eq!(used(&cluster), json!({"0": "p-0/0"}));
    step::step(&next, &job).await.unwrap();
    assert_eq!(cluster.asked(), [""; 0], "it waits for the watch");
    cluster.remove(&cluster::pod("sample-worker-0"));
    for _ in 0..3 {
        cluster.deliver(&next);
        step::step(&next, &job).await.unwrap();
    }
    assert_eq!(
        cluster.object(&cluster::pod("sample-worker-0")),
        Value::Null
    );
    let resets = &cluster.partitions()[0]["spec"]["resetGeneration"];
    assert_eq!(*resets, 1);
}

#[tokio::test]
async fn a_use_is_forgotten_when_the_api_server_lacks_the_partition() {
    let cluster = Cluster::default();
    let job = running(&cluster).await;
    let name = partition(&cluster);
    cluster.remove(&format!("/apis/graphcore.ai/v1alpha1{name}"));
    let next = next_leader(&cluster);
    step::step(&next, &job).await.unwrap();
    assert_eq!(cluster.asked()[0], format!("GET {name}"));
    assert_eq!(used(&cluster), Value::Null);
}
