//! Jobs that are being deleted.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::IPUJobStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::fixtures::JobFixture;
use super::world::World;
use crate::finalize::{self, Deleting, deleting};
use crate::plan::Plan;

#[test]
fn pods_go_first_then_partitions_then_the_finalizer() {
    let job = IPUJob::sample().workers("2").launcher(&["mpirun"]).valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.settle(&job);

    let seen = world.observed.read();
    let Deleting::Pods { plan, remaining } = deleting(&seen.pods, &seen.partitions) else {
        panic!("Pods go first");
    };
    assert_eq!(
        remaining,
        ["sample-worker-0", "sample-worker-1", "sample-launcher"]
    );
    assert_eq!(plan.delete_pods.len(), 3);
    assert!(plan.delete_partitions.is_empty());

    let Deleting::Partitions { plan, .. } = deleting(&[], &seen.partitions) else {
        panic!("partitions go second");
    };
    assert_eq!(plan.delete_partitions.len(), 1);
    assert_eq!(deleting(&[], &[]), Deleting::Done);
}

#[test]
fn what_is_being_deleted_is_waited_for_and_named() {
    let job = IPUJob::sample().valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.settle(&job);
    let now = world.now;
    for pod in &mut world.observed.pods {
        pod.metadata.deletion_timestamp = Some(Time(now));
    }
    let seen = world.observed.read();
    let first = deleting(&seen.pods, &seen.partitions);
    let Deleting::Pods { plan, .. } = &first else {
        panic!("a Pod is still there");
    };
    assert!(plan.delete_pods.is_empty(), "nothing is deleted twice");
    let status = finalize::status(&first, world.status(), now);
    let waiting = "deleting: waiting for Pods to end: sample-worker-0";
    assert_eq!(status.last_message, waiting);
    let held = &mut world.observed.pods[0];
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    held.metadata.deletion_grace_period_seconds = Some(30);
    let seen = world.observed.read();
    let message = finalize::status(&deleting(&seen.pods, &[]), world.status(), now).last_message;
    assert_eq!(message, waiting, "its containers run");
    world.observed.pods[0]
        .metadata
        .deletion_grace_period_seconds = Some(0);
    let seen = world.observed.read();
    let message = finalize::status(&deleting(&seen.pods, &[]), world.status(), now).last_message;
    let expected = format!(
        "{waiting}, which has ended and is kept by the finalizer example.com/hold; who set it has to remove it"
    );
    assert_eq!(message, expected);
    let finalizers = (0..100).map(|number| format!("example.com/{number}"));
    world.observed.pods[0].metadata.finalizers = Some(finalizers.collect());
    let seen = world.observed.read();
    let message = finalize::status(&deleting(&seen.pods, &[]), world.status(), now).last_message;
    assert!(
        message.contains(
            "the finalizer example.com/0, example.com/1, example.com/2, example.com/3 and 96 more;"
        ),
        "{message}"
    );

    world.waits(0, "does not answer: connection refused");
    let found = &mut world.observed.partitions[0];
    found.metadata.deletion_timestamp = Some(Time(now));
    let second = deleting(&[], &world.observed.read().partitions);
    let message = finalize::status(&second, world.status(), now).last_message;
    for part in [
        "pod1:8090: does not answer: connection refused",
        "graphcore.ai/force-release=true",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn hundreds_of_objects_are_counted_and_eight_are_named() {
    let now = World::new().now;
    let names = |count: u32| (0..count).map(|number| format!("w-{number}")).collect();
    let message = |remaining| {
        let deleting = Deleting::Pods {
            plan: Plan::default(),
            remaining,
        };
        finalize::status(&deleting, &IPUJobStatus::default(), now).last_message
    };
    let eight = "deleting: waiting for Pods to end: w-0, w-1, w-2, w-3, w-4, w-5, w-6, w-7";
    assert_eq!(message(names(8)), eight);
    assert_eq!(message(names(256)), format!("{eight}, and 248 more"));
}
