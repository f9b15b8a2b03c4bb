//! Changed templates of jobs without launcher, and Pods that the API server refuses.

use ipu_api::ipujob::IPUJob;
use ipu_api::labels::CANONICAL_TEMPLATE_HASH_ANNOTATION;
use jiff::SignedDuration;
use serde_json::json;

use super::fixtures::JobFixture;
use super::world::{World, time};
use crate::status::Obstacle;
use crate::validate::ValidJob;

fn version(job: &IPUJob, version: &str) -> ValidJob {
    job.clone()
        .template(&json!({"metadata": {"labels": {"version": version}}}))
        .valid()
}

fn versions(world: &World) -> Vec<(String, String)> {
    let pods = world.observed.pods.iter();
    let mut found: Vec<_> = pods
        .map(|pod| {
            let labels = pod.metadata.labels.as_ref().unwrap();
            let name = pod.metadata.name.clone().unwrap();
            (name, labels["version"].clone())
        })
        .collect();
    found.sort();
    found
}

fn running(job: &ValidJob) -> World {
    let mut world = World::new();
    world.settle(job);
    world.ready(0..job.instances);
    world.settle(job);
    world.run_pods();
    world.settle(job);
    world
}

#[test]
fn recreate_replaces_all_instances_at_once() {
    let job = IPUJob::sample()
        .instances(3)
        .strategy(&json!({"type": "Recreate"}));
    let mut world = running(&version(&job, "1"));
    let new = version(&job, "2");
    assert_eq!(world.step(&new).plan.delete_pods.len(), 3);
    world.settle(&new);
    assert_eq!(world.resets.len(), 3, "never without a reset");
    world.reset_partitions();
    world.settle(&new);
    world.run_pods();
    world.settle(&new);
    assert!(versions(&world).iter().all(|(_, version)| version == "2"));
    assert_eq!(world.row(), "Running 3 3 Successfully reconciled IPUJob");
}

#[test]
fn a_rolling_update_keeps_as_many_instances_as_it_must() {
    let job = IPUJob::sample().instances(4).strategy(&json!({
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1},
    }));
    let mut world = running(&version(&job, "1"));
    let new = version(&job, "2");
    let mut rounds = 0;
    while versions(&world).len() != 4 || versions(&world).iter().any(|(_, version)| version == "1")
    {
        world.settle(&new);
        world.ready(world.slots_without_status());
        world.reset_partitions();
        let available = world.observed.pods.len();
        assert!((3..=5).contains(&available), "{available} instances");
        world.settle(&new);
        world.run_pods();
        world.settle(&new);
        rounds += 1;
        assert!(rounds < 12, "{:?}", versions(&world));
    }
    world.settle(&new);
    assert_eq!(world.slots(), [0, 1, 2, 3], "the stand-in is gone");
    assert_eq!(world.row(), "Running 4 4 Successfully reconciled IPUJob");
}

#[test]
fn a_deleted_worker_that_succeeds_completes_no_instance() {
    let job = IPUJob::sample().strategy(&json!({
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }));
    let mut world = running(&version(&job, "1"));
    let worker = world.pod("sample-worker-0").clone();
    let new = version(&job, "2");
    world.step(&new);
    assert_eq!(world.pods(), [""; 0]);
    let asked = world.now;
    world.observed.pods.push(worker);
    world.end("sample-worker-0", 0);
    // The sequence of a real kubelet and API server: the deletion with its grace period, and a
    // second after the end of the containers, without it.
    for (due, grace) in [(30, 30), (1, 0)] {
        let metadata = &mut world.pod("sample-worker-0").metadata;
        metadata.deletion_timestamp = Some(time(asked + SignedDuration::from_secs(due)));
        metadata.deletion_grace_period_seconds = Some(grace);
        world.step(&new);
        let run = world.status().run.clone().unwrap_or_default();
        assert!(run.ended.is_empty(), "grace {grace}: {:?}", run.ended);
    }
    world.lose("sample-worker-0");
    world.settle(&new);
    world.reset_partitions();
    world.settle(&new);
    let expected = ("sample-worker-0".to_owned(), "2".to_owned());
    assert_eq!(versions(&world), [expected]);
}

#[test]
fn a_template_that_does_not_start_is_replaced_by_the_next_one() {
    let job = IPUJob::sample().strategy(&json!({
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }));
    let mut world = running(&version(&job, "1"));
    let broken = version(&job, "2");
    world.settle(&broken);
    world.reset_partitions();
    world.settle(&broken);
    assert_eq!(versions(&world)[0].1, "2", "it is Pending");
    let fixed = version(&job, "3");
    world.settle(&fixed);
    world.reset_partitions();
    world.settle(&fixed);
    assert_eq!(versions(&world)[0].1, "3");
}

#[test]
fn a_job_whose_pods_are_refused_gives_its_partition_back_and_asks_again() {
    let job = IPUJob::sample().valid();
    let refused = [Obstacle::Refused {
        object: "Pod sample-worker-0".to_owned(),
        reason: "exceeded quota".to_owned(),
    }];
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.step_with(&job, &refused);
    assert!(world.status().last_message.contains("exceeded quota"));
    world.wait(200);
    world.step_with(&job, &refused);
    assert_eq!(world.slots(), [0], "it may be over in a moment");
    world.wait(100);
    world.settle(&job);
    assert_eq!(world.slots(), [0; 0]);
    let message = &world.status().last_message;
    assert!(message.contains("requests them again at"), "{message}");
    world.wait(300);
    world.settle(&job);
    assert_eq!(world.slots(), [0]);
    world.ready([0]);
    world.settle(&job);
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert!(
        world
            .status()
            .run
            .as_ref()
            .is_none_or(|run| run.refused_since.is_none())
    );
}

/// A template that is written like this.
fn written(text: &serde_json::Value) -> ValidJob {
    let mut job = IPUJob::sample()
        .instances(2)
        .strategy(&json!({"type": "Recreate"}));
    job.spec.workers.template.0 = text.clone();
    job.valid()
}

#[test]
fn a_template_that_is_written_in_another_way_replaces_no_pod() {
    let template = |resources| json!({"spec": {"containers": [{"name": "main", "image": "program:1", "resources": resources}]}});
    let job = written(&template(
        json!({"requests": {"cpu": "0.5", "memory": "2048Mi"}}),
    ));
    let mut world = running(&job);
    let mut printed = template(json!({"requests": {"memory": "2Gi", "cpu": "500m"}, "limits": {}}));
    printed["metadata"] = json!({"creationTimestamp": null});
    assert!(world.step(&written(&printed)).plan.delete_pods.is_empty());
    let more = written(&template(
        json!({"requests": {"cpu": "0.6", "memory": "2048Mi"}}),
    ));
    assert!(!world.step(&more).plan.delete_pods.is_empty());
}

#[test]
fn pods_of_an_earlier_version_stay() {
    let job = written(&json!({"spec": {"containers": [{
        "name": "main", "image": "program:1", "resources": {"requests": {"cpu": "0.5"}},
    }]}}));
    let mut world = running(&job);
    // That version knew only the text of the template.
    for pod in &mut world.observed.pods {
        let annotations = pod.metadata.annotations.as_mut().unwrap();
        annotations
            .remove(CANONICAL_TEMPLATE_HASH_ANNOTATION)
            .unwrap();
    }
    assert!(world.step(&job).plan.delete_pods.is_empty());
}
