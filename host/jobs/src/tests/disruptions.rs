//! The status of a job with Pods that do not start, that fail outside of their program, or that
//! Kubernetes evicts. The statuses of the Pods are those of real nodes (`tests/e2e` checks each of
//! them).

use ipu_api::ipujob::IPUJob;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::fixtures::{JobFixture, parallel, running, starting};
use super::world::World;
use crate::status::events::status_events;

impl World {
    /// The kubelet: a Pod is evicted from a node that lacks memory.
    pub(crate) fn evict(&mut self, pod: &str) {
        self.evict_for_its_own_limit(pod, "The node was low on resource: memory.");
        self.disrupt(
            pod,
            "TerminationByKubelet",
            "The node was low on resource: memory.",
        );
    }

    /// The kubelet: a Pod is evicted because it went beyond a limit of its own.
    fn evict_for_its_own_limit(&mut self, pod: &str, message: &str) {
        self.end(pod, 137);
        let status = self.pod(pod).status.as_mut().unwrap();
        status.reason = Some("Evicted".to_owned());
        status.message = Some(message.to_owned());
    }

    /// Kubernetes: reports why it ends a Pod.
    fn disrupt(&mut self, pod: &str, reason: &str, message: &str) {
        let status = self.pod(pod).status.get_or_insert_default();
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..PodCondition::default()
        };
        status.conditions.get_or_insert_default().push(condition);
    }

    /// Kubernetes: reports why it ends a Pod, and requests its deletion.
    fn take_away(&mut self, pod: &str, reason: &str, message: &str) {
        self.disrupt(pod, reason, message);
        let now = Time(self.now);
        self.pod(pod).metadata.deletion_timestamp = Some(now);
    }

    /// The kubelet: a Pod has this status.
    pub(super) fn pod_says(&mut self, pod: &str, status: Value) {
        let status: PodStatus = serde_json::from_value(status).unwrap();
        self.pod(pod).status = Some(status);
    }
}

#[test]
fn lastmessage_says_why_a_pod_does_not_start() {
    let unschedulable = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 Insufficient cpu.",
    }]});
    let image = json!({"phase": "Pending", "containerStatuses": [{
        "name": "main", "image": "none:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {
            "reason": "ImagePullBackOff", "message": "Back-off pulling image \"none:1\"",
        }},
    }]});
    for (status, why) in [
        (
            unschedulable,
            "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.",
        ),
        (image, "ImagePullBackOff: Back-off pulling image \"none:1\""),
    ] {
        let (job, mut world) = starting(&IPUJob::sample());
        assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
        world.pod_says("sample-worker-0", status);
        world.settle(&job);
        assert_eq!(
            world.row(),
            format!("Running 1 1 Pod sample-worker-0: {why}")
        );
        assert_eq!(world.condition("PodsReady").reason, "PodsWaiting");
        world.run_pods();
        world.settle(&job);
        assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    }
}

#[test]
fn a_disrupted_pod_is_reported_with_the_reason_and_replaced() {
    let (job, mut world) = running(&IPUJob::sample());
    let before = world.status().clone();
    world.take_away(
        "sample-worker-0",
        "PreemptionByScheduler",
        "default-scheduler: preempting to accommodate a higher priority pod",
    );
    world.step(&job);
    let why = "Pod sample-worker-0 is being deleted: PreemptionByScheduler: default-scheduler: \
               preempting to accommodate a higher priority pod";
    assert_eq!(world.status().last_message, why);
    let events = status_events(&before, world.status());
    let reported = events.iter().find(|event| event.reason == "PodsWaiting");
    assert_eq!(reported.unwrap().note, why);

    world.lose("sample-worker-0");
    world.settle(&job);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0"]);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
}

#[test]
fn a_drain_is_named_where_it_fails_a_run() {
    let drained = ("EvictionByEvictionAPI", "Eviction API: evicting");
    for (pod, how) in [
        (
            "sample-worker-1",
            "worker sample-worker-1 was deleted (EvictionByEvictionAPI: Eviction API: evicting), \
             while the launcher ran",
        ),
        (
            "sample-launcher",
            "launcher failed: Pod sample-launcher was deleted while it ran (EvictionByEvictionAPI: \
             Eviction API: evicting)",
        ),
    ] {
        let (job, mut world) = running(&parallel());
        world.take_away(pod, drained.0, drained.1);
        world.settle(&job);
        assert_eq!(world.row(), format!("Failed 0 1 {how}"));
    }
}

#[test]
fn a_pod_that_the_kubelet_ends_for_its_node_comes_back_and_one_for_its_own_limit_fails() {
    let (job, mut world) = running(&IPUJob::sample());
    world.evict("sample-worker-0");
    let before = world.status().clone();
    world.step(&job);
    let lost = "lost Pod sample-worker-0, container main: exit code 137 (Evicted): The node was low \
                on resource: memory.";
    assert_eq!(world.status().last_message, lost);
    let events = status_events(&before, world.status());
    assert!(events.iter().any(|event| event.note == lost), "{events:?}");
    world.settle(&job);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0"]);

    let (job, mut world) = running(&IPUJob::sample());
    let limit = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\".";
    world.evict_for_its_own_limit("sample-worker-0", limit);
    world.settle(&job);
    assert_eq!(
        world.row(),
        format!(
            "Failed 0 1 worker failed: Pod sample-worker-0, container main: exit code 137 \
             (Evicted): {limit}"
        )
    );
}
